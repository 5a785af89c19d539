bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = contrib/attnreplay.bash
