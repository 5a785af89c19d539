libattnreplay_a_SOURCES += traces/trace.h traces/model.h traces/capture.h
