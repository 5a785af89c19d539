TEST_EXTENSIONS = .sh
TAP_DRIVER  = env AM_TAP_AWK='$(AWK)' $(SHELL) \
              $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER    = $(TAP_DRIVER)
SH_LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
  ATTNREPLAY='$(abs_top_builddir)/attnreplay$(EXEEXT)' \
  ATTNREPLAY_DATA='$(abs_top_srcdir)' \
  srcdir='$(abs_top_srcdir)'; \
  export ATTNREPLAY ATTNREPLAY_DATA srcdir;

# What the tests share.
check_LIBRARIES += tests/libtest.a
tests_libtest_a_SOURCES = tests/alloc_fault.c tests/alloc_fault.h tests/batch_case.c \
                          tests/batch_case.h tests/file.c tests/file.h tests/gate_file.h tests/gpu.c \
                          tests/gpu.h tests/query.c tests/query.h tests/select_gpu.c \
                          tests/select_gpu.h tests/tap.c tests/tap.h
TEST_LIBS = tests/libtest.a $(AR_LIBS)
# For programs that let allocations and threads fail.
FAULT_LINK = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc \
             -Wl,--wrap=strdup,--wrap=strndup,--wrap=pthread_create,--wrap=ZSTD_createDStream
FUZZ_MAIN = tests/fuzz.h tests/fuzz_main.c
EXTRA_DIST += tests/tap.sh

check_PROGRAMS += tests/fuzz-files
tests_fuzz_files_SOURCES = tests/fuzz-files.c $(FUZZ_MAIN)
tests_fuzz_files_LDADD   = $(TEST_LIBS)

dist_check_SCRIPTS += tests/t-cli.sh tests/t-docs.sh tests/t-examples.sh
dist_check_SCRIPTS += tests/t-includes.sh tests/t-install.sh

# The same tests under prove(1), for developers.
prove: $(check_PROGRAMS) $(check_LIBRARIES) attnreplay$(EXEEXT)
	$(AM_TESTS_ENVIRONMENT) prove --merge -e '' $(check_PROGRAMS) && \
	  prove --merge -e $(SHELL) $(addprefix $(top_srcdir)/,$(dist_check_SCRIPTS))
.PHONY: prove
