libattnreplay_a_SOURCES += traces/trace.h traces/model.h traces/capture.h

libattnreplay_a_SOURCES += \
  traces/date.c traces/import.c traces/import.h traces/import_azure.c \
  traces/import_canonical.c traces/import_mooncake.c traces/import_vidur.c \
  traces/importers.c traces/intern.c traces/intern.h traces/reader.c traces/reader.h \
  traces/record.c traces/summary.c traces/summary.h traces/trace.c

nobase_dist_pkgdata_DATA += traces/samples/README.md traces/samples/azure-2023-code-200.csv
