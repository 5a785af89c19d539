/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a status for programs, a message for people. */
#ifndef AR_STATUS_H
#define AR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, exit status of the program, text) */
#define AR_STATUS_MAP(X) \
	X(OK, 0, "success") \
	X(USAGE, 2, "wrong usage") \
	X(DATA, 3, "input cannot be read or is malformed") \
	X(ENGINE, 3, "the modelled engine fails") \
	X(NODEV, 4, "missing device or library") \
	X(UNKNOWN, 5, "what a limit asks is not known") \
	X(NOMEM, 1, "out of memory") \
	X(IO, 1, "output error") \
	X(DB, 1, "database error") \
	X(CUDA, 1, "CUDA error") \
	X(LIMIT, 1, "limit crossed") \
	X(INTERRUPTED, 1, "interrupted")

enum ar_status {
#define X(name, code, text) AR_##name,
	AR_STATUS_MAP(X)
#undef X
};

struct ar_err {
	enum ar_status status;
	char msg[512];
};

/* Record the failure in *err (which may be NULL) and return st.  A message is lower case, without a
 * full stop and without the program's name.  A message about a file begins with "FILE:" or
 * "FILE:LINE:". */
enum ar_status ar_fail(struct ar_err *err, enum ar_status st, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* There is no memory for what `file`, the caller's source file, makes; the message names that. */
enum ar_status ar_nomem_at(struct ar_err *err, const char *file);
#define ar_nomem(err) ar_nomem_at(err, __FILE__)

/* Put "fmt: " in front of the message.  Callers that know the context use it. */
void ar_err_prefix(struct ar_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int ar_exit_code(enum ar_status st);

/* Catch SIGTERM, and SIGHUP and SIGINT unless they are ignored.  The first signal sets
 * ar_interrupted(): long loops poll it and stop at the next boundary.  A second signal, a second or
 * more after the first, kills the program. */
void ar_catch_interrupts(void);
int ar_interrupted(void);

#ifdef __cplusplus
}
#endif
#endif
