MAN_PAGES =
MAN_PAGES += man/attnreplay-run.1
MAN_PAGES += man/attnreplay-trace.1 man/attnreplay-trace.5
MAN_PAGES += man/attnreplay-methods.1
