# SPDX-License-Identifier: Apache-2.0
TEST_EXTENSIONS = .sh
TAP_DRIVER  = env AM_TAP_AWK='$(AWK)' $(SHELL) \
              $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER    = $(TAP_DRIVER)
SH_LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_COMPILER = $(SHELL)
# The address sanitizer holds the last 4 MB of freed memory back.  With its 256 MB, programs write
# to more than twice as many pages, and tests take a quarter longer.
AM_TESTS_ENVIRONMENT = \
  ATTNREPLAY='$(abs_top_builddir)/attnreplay$(EXEEXT)' \
  ATTNREPLAY_DATA='$(abs_top_srcdir)' \
  ASAN_OPTIONS="quarantine_size_mb=4:$$ASAN_OPTIONS" \
  srcdir='$(abs_top_srcdir)'; \
  export ATTNREPLAY ATTNREPLAY_DATA ASAN_OPTIONS srcdir;

# To add a test, write tests/t-NAME.c or tests/t-NAME.sh.  Then add tests/t-NAME to check_PROGRAMS,
# or tests/t-NAME.sh to dist_check_SCRIPTS, in the local.mk of the folder that it tests.  Automake
# makes the program of tests/t-NAME.c and of what LDADD names.  A program of several files has
# tests_t_NAME_SOURCES as well.
LDADD = tests/libtest.a libattnreplay.a $(KERNELS_SO) $(AR_LIBS) $(CUDA_SHARED_LIBS)
# Every test can make allocations and threads fail, so alloc_fault.c is in each program.
AM_LDFLAGS += -Wl,-u,fault_arm,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc \
              -Wl,--wrap=strdup,--wrap=strndup,--wrap=pthread_create,--wrap=ZSTD_createCStream \
              -Wl,--wrap=ZSTD_createDStream,--wrap=ar_nomem_at $(PLUGIN_EXPORTS)

# Device code is large, so all tests share one copy of it.  That library takes the C functions that
# it calls from the test program (AR_LIBS has libattnreplay.a once more for them), and both take
# cudart from the toolkit's shared library.
if HAVE_CUDA
KERNELS_SO = tests/libkernels.so
CLEANFILES += $(KERNELS_SO)
KERNELS_RPATH = -Wl,-rpath,'$$ORIGIN',-rpath,$(CUDA_LIBDIR)
AM_LDFLAGS += $(KERNELS_RPATH)
$(KERNELS_SO): $(DEVICE_CODE:.cu=.$(OBJEXT))
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && \
	$(CC) $(CFLAGS) -shared -Wl,-soname,$(@F) $(KERNELS_RPATH) $(LDFLAGS) -o $@ \
	  $(DEVICE_CODE:.cu=.$(OBJEXT)) $(CUDA_LDFLAGS) $(CUDA_SHARED_LIBS)
endif

# What the tests share.
check_LIBRARIES += tests/libtest.a
tests_libtest_a_SOURCES = \
  tests/a_model.h tests/alloc_fault.c tests/alloc_fault.h tests/backend-case.c \
    tests/backend-case.h tests/batch_case.c tests/batch_case.h tests/decode_case.c \
    tests/decode_case.h tests/delta_case.c \
    tests/delta_case.h \
    tests/state_case.c tests/state_case.h tests/ssm_case.c tests/ssm_case.h \
    tests/drop_case.c tests/drop_case.h tests/drop_ranks.c tests/drop_ranks.h \
    tests/drops-case.c tests/drops-case.h \
    tests/fake_cupti.h tests/fake_nvml.h tests/file.c tests/file.h tests/fuzz.h \
    tests/fuzz_main.c tests/gate_file.h tests/gpu_test.c tests/gpu_test.h \
    tests/gpu_both.c tests/gpu_both.h tests/mixed-case.c tests/mixed-case.h tests/query.c \
    tests/query.h tests/rank_case.c tests/rank_case.h tests/rank_processes.c \
    tests/rank_processes.h tests/reuse-case.c tests/reuse-case.h \
    tests/revive-case.c tests/revive-case.h tests/roofline_work.h \
    tests/sample_db.c tests/sample_db.h tests/select_gpu.c \
    tests/select_gpu.h tests/selector_case.h tests/store_case.c tests/store_case.h tests/tap.c \
    tests/tap.h tests/tiny_model.c tests/tiny_model.h \
    tests/trace_text.h tests/verify-case.c tests/verify-case.h tests/watch_gpu.c \
    tests/watch_gpu.h \
    tests/whole_model.c tests/whole_model.h
EXTRA_DIST += tests/fake_vllm.sh tests/plugin_fault.c tests/slurm.sh tests/tap.sh

check_PROGRAMS += tests/fuzz-files
dist_check_SCRIPTS += \
  tests/t-cli.sh tests/t-device-code.sh tests/t-docs.sh tests/t-examples.sh tests/t-includes.sh \
    tests/t-install.sh tests/t-lists.sh tests/t-packages.sh tests/t-pictures.sh tests/t-readme.sh \
    tests/t-version.sh tests/t-wheel.sh

# Fuzz targets, see CONTRIBUTING.md.
fuzz-%: tests/fuzz-%.c tests/fuzz.h libattnreplay.a
	$(AM_V_CCLD)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) \
	  $(AM_CFLAGS) $(CFLAGS) -fsanitize=fuzzer -o $@ $< $(AR_LIBS)

# The same tests under prove(1), for developers.
prove: $(check_PROGRAMS) $(check_LIBRARIES) attnreplay$(EXEEXT)
	$(AM_TESTS_ENVIRONMENT) prove --merge -e '' $(check_PROGRAMS) && \
	  prove --merge -e $(SHELL) $(addprefix $(top_srcdir)/,$(dist_check_SCRIPTS))
.PHONY: prove
