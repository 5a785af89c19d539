# SPDX-License-Identifier: Apache-2.0
# Kernel times and the database.
libattnreplay_a_SOURCES += \
  profiler/cupti/cupti_api.h profiler/cupti/prof.h profiler/nvml/energy.c \
    profiler/nvml/energy.h profiler/nvml/gpu_state.c \
    profiler/nvml/gpu_state.h profiler/nvml/nvml.c profiler/nvml/nvml.h \
  profiler/store/store_columns.c profiler/store/columns.def profiler/store/store_columns.h \
    profiler/store/distribution.c profiler/store/distribution.h profiler/store/functions.c \
    profiler/store/functions.h profiler/store/process.c profiler/store/process.h \
    profiler/store/store.c profiler/store/store.h profiler/store/store_disk.c \
    profiler/store/store_disk.h profiler/store/store_file.c \
    profiler/store/store_file.h profiler/store/store_merge.c profiler/store/store_merge.h \
    profiler/store/store_runs.c profiler/store/store_runs.h profiler/store/store_spans.c \
    profiler/store/store_spans.h profiler/store/store_stage.c profiler/store/store_stage.h \
    profiler/store/store_where.c profiler/store/store_writer.c profiler/store/store_writer.h \
    profiler/store/stored_views.c profiler/store/stored_views.h
if HAVE_CUPTI
libattnreplay_a_SOURCES += profiler/cupti/cupti.c
else
libattnreplay_a_SOURCES += profiler/cupti/prof_none.c
endif

# The tables' part of attnreplay-db(5).
noinst_PROGRAMS += profiler/store/columns-mdoc
profiler_store_columns_mdoc_SOURCES = profiler/store/columns_mdoc.c
profiler_store_columns_mdoc_LDADD   =
profiler_store_columns_mdoc_LDFLAGS = $(SAN_LDFLAGS)

# The views as a C string.
EXTRA_DIST += profiler/store/views.sql
CLEANFILES += profiler/store/views.inc
profiler/store/store_file.$(OBJEXT): profiler/store/views.inc

check_PROGRAMS += \
  tests/make-db \
  tests/t-columns \
  tests/t-energy \
  tests/t-merge \
  tests/t-migrate \
  tests/t-prof \
  tests/t-queries \
  tests/t-spans \
  tests/t-stage \
  tests/t-steady \
  tests/t-store \
  tests/t-store-disk
dist_check_SCRIPTS += \
  tests/t-cmd-merge.sh tests/t-disk.sh tests/t-version-5.sh
EXTRA_DIST += tests/data/version-5.db.gz

if HAVE_CUDA
check_PROGRAMS += tests/t-prof-gpu
tests_t_prof_gpu_SOURCES = tests/prof_kernel.cu tests/t-prof-gpu.c
endif

tests_t_store_disk_SOURCES = tests/t-store-disk.c tests/fake_disk.c

# Libraries that look like CUPTI and NVML, and one that says where files lie.
FAKE_LIBRARY = $(AM_V_CCLD)$(MKDIR_P) $(@D) && \
	$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -fPIC \
    -shared \
	  -o $@
EXTRA_DIST += tests/fake_cupti.c tests/fake_nvml.c
EXTRA_tests_t_energy_DEPENDENCIES = tests/fake_nvml.so
CLEANFILES += tests/fake_nvml.so
tests/fake_nvml.so: tests/fake_nvml.c tests/fake_nvml.h
	$(FAKE_LIBRARY) $(srcdir)/tests/fake_nvml.c
EXTRA_tests_t_store_disk_DEPENDENCIES = tests/fake_disk.so
CLEANFILES += tests/fake_disk.so
tests/fake_disk.so: tests/fake_disk.c
	$(FAKE_LIBRARY) $(srcdir)/tests/fake_disk.c
if HAVE_CUPTI
EXTRA_tests_t_prof_DEPENDENCIES = tests/fake_cupti.so
CLEANFILES += tests/fake_cupti.so
tests/fake_cupti.so: tests/fake_cupti.c tests/fake_cupti.h profiler/cupti/cupti_api.h
	$(FAKE_LIBRARY) $(srcdir)/tests/fake_cupti.c
endif
