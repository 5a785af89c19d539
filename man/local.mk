MAN_PAGES =
MAN_PAGES += man/attnreplay-run.1
