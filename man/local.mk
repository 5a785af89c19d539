# SPDX-License-Identifier: Apache-2.0
# Man pages are made from man/NAME.N.in.  In a page of section 1 the line @OPTIONS@ becomes the
# option list as the program just built prints it, and @COMMANDS@ the list of its commands;
# @VERSION@ is the version, in any page.  In attnreplay-db(5) the line @TABLES@ becomes what
# profiler/store/columns.def says of the tables.
MAN_PAGES = \
  man/attnreplay-bench.1 man/attnreplay-calibrate.1 man/attnreplay-capture.1 \
    man/attnreplay-capture.5 man/attnreplay-curve.1 man/attnreplay-db.5 man/attnreplay-diff.1 \
    man/attnreplay-eval.1 \
    man/attnreplay-import-engine.1 man/attnreplay-merge.1 man/attnreplay-methods.1 \
    man/attnreplay-report.1 man/attnreplay-run.1 man/attnreplay-search.1 \
    man/attnreplay-select.1 man/attnreplay-sql.1 man/attnreplay-sweep.1 man/attnreplay-trace.1 \
    man/attnreplay-trace.5 man/attnreplay-tune.1 man/attnreplay.1

nodist_man_MANS += $(MAN_PAGES)
EXTRA_DIST      += $(MAN_PAGES:=.in)
CLEANFILES      += $(MAN_PAGES) $(MAN_PAGES:=.tmp) $(MAN_PAGES:=.list)

MAN_COMMANDS = awk '/^commands:/ { on = 1; next } !NF { on = 0 } \
  on { name = $$1; sub(/^ *[^ ]+ */, ""); \
       printf ".It Xr attnreplay-%s 1\n%s%s.\n", name, toupper(substr($$0, 1, 1)), substr($$0, 2) }'
# The brackets keep config.status from putting the version in here.
MAN_EXPAND = $(SED) -e 's/@[V]ERSION@/$(VERSION)/' \
  -e '/^@OPTIONS@$$/{' -e 'r $@.list' -e d -e '}' -e '/^@COMMANDS@$$/{' -e 'r $@.list' -e d -e '}' \
  -e '/^@TABLES@$$/{' -e 'r $@.list' -e d -e '}'

man/%.1: $(srcdir)/man/%.1.in attnreplay$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && \
	command=`echo '$*' | $(SED) 's/^attnreplay-*//'` && \
	if test -n "$$command"; then ./attnreplay$(EXEEXT) $$command --mdoc; \
	else ./attnreplay$(EXEEXT) --help | $(MAN_COMMANDS); fi >$@.list && \
	$(MAN_EXPAND) $< >$@.tmp && rm -f $@.list && mv -f $@.tmp $@

man/%.5: $(srcdir)/man/%.5.in profiler/store/columns-mdoc$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && ./profiler/store/columns-mdoc$(EXEEXT) >$@.list && \
	$(MAN_EXPAND) $< >$@.tmp && rm -f $@.list && mv -f $@.tmp $@
