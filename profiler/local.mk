libattnreplay_a_SOURCES += \
  src/report/write_csv.c src/report/write_json.c src/report/write_table.c src/report/writer.h \
  src/report/writers.c profiler/store/columns.c profiler/store/columns.def profiler/store/columns.h \
  profiler/store/functions.c profiler/store/functions.h profiler/cupti/prof.h \
  profiler/store/store.c profiler/store/store.h profiler/store/store_file.c profiler/store/store_file.h \
  profiler/store/store_spans.c profiler/store/store_spans.h profiler/store/store_stage.c profiler/store/store_stage.h \
  profiler/store/store_writer.c profiler/store/store_writer.h

if HAVE_CUPTI
libattnreplay_a_SOURCES += profiler/cupti/cupti.c
else
libattnreplay_a_SOURCES += profiler/cupti/none.c
endif

# The tables' part of attnreplay-db(5).
noinst_PROGRAMS += profiler/store/columns-mdoc
profiler_store_columns_mdoc_SOURCES = profiler/store/columns_mdoc.c profiler/store/columns.def

# The views as a C string.
EXTRA_DIST += profiler/store/views.sql
CLEANFILES += profiler/store/views.inc
profiler/store/store_file.$(OBJEXT): profiler/store/views.inc
profiler/store/views.inc: profiler/store/views.sql
	$(AM_V_GEN)$(MKDIR_P) $(@D) && \
	$(SED) -e 's/["\\]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(srcdir)/profiler/store/views.sql >$@.tmp && \
	mv -f $@.tmp $@

check_PROGRAMS += tests/make-db
tests_make_db_SOURCES = tests/make-db.c tests/sample_db.c tests/sample_db.h
tests_make_db_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-columns
tests_t_columns_SOURCES = tests/t-columns.c
tests_t_columns_LDADD   = $(TEST_LIBS)

check_PROGRAMS += tests/t-migrate
tests_t_migrate_SOURCES = tests/t-migrate.c
tests_t_migrate_LDADD   = $(TEST_LIBS)
dist_check_SCRIPTS += tests/t-version-5.sh
EXTRA_DIST += tests/data/version-5.db.gz

check_PROGRAMS += tests/t-spans
tests_t_spans_SOURCES = tests/t-spans.c tests/sample_db.c tests/sample_db.h
tests_t_spans_LDADD   = $(TEST_LIBS)
tests_t_spans_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-stage
tests_t_stage_SOURCES = tests/t-stage.c tests/sample_db.c tests/sample_db.h
tests_t_stage_LDADD   = $(TEST_LIBS)
tests_t_stage_LDFLAGS = $(FAULT_LINK)

check_PROGRAMS += tests/t-store
tests_t_store_SOURCES = tests/t-store.c tests/sample_db.c tests/sample_db.h
tests_t_store_LDADD   = $(TEST_LIBS)
tests_t_store_LDFLAGS = $(FAULT_LINK)

dist_check_SCRIPTS += tests/t-report.sh tests/t-sql.sh

check_PROGRAMS += tests/t-prof
tests_t_prof_SOURCES = tests/t-prof.c tests/fake_cupti.h
tests_t_prof_LDADD   = $(TEST_LIBS)
tests_t_prof_LDFLAGS = $(FAULT_LINK)
EXTRA_DIST += tests/fake_cupti.c
if HAVE_CUPTI
EXTRA_tests_t_prof_DEPENDENCIES = tests/fake_cupti.so
CLEANFILES += tests/fake_cupti.so
tests/fake_cupti.so: tests/fake_cupti.c tests/fake_cupti.h
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && \
	$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -fPIC -shared \
	  -o $@ $(srcdir)/tests/fake_cupti.c
endif

if HAVE_CUDA
check_PROGRAMS += tests/t-prof-gpu
tests_t_prof_gpu_SOURCES = tests/t-prof-gpu.c tests/prof_kernel.cu
tests_t_prof_gpu_LDADD   = $(TEST_LIBS)
endif
