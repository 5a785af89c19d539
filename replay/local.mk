libattnreplay_a_SOURCES += replay/backend.h replay/batch.h
