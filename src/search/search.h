/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay search: find the value of an option that keeps limits of latency best.  Each run of
 * the trace with one value is a point of a curve. */
#ifndef AR_SEARCH_H
#define AR_SEARCH_H

#include <cjson/cJSON.h>

#include "src/run/run.h"
#include "src/search/rates.h"
#include "traces/algebra/resample.h"

enum { SEARCH_REPLICATES = 40, SEARCH_TPS = 16 };

struct search_args {
	char *slo, *json, *tps;
	double lowest, highest, precision; /* ends 0: not given */
	int intervals;			   /* 0 or 1 */
	int64_t intervals_ns;		   /* how long to make the one of a subject */
	bool apart;			   /* prefill and decodes may be on engines of their own */
};

/* One value of the option that a search sets. */
struct point {
	double x;
	int64_t tp;	 /* GPUs of a replica; x is of all replicas in a search for GPUs */
	int64_t prefill; /* replicas for prefill alone; 0: not apart */
	bool kept;	 /* all limits with a percentile */
	bool fails;	 /* the policy's engine fails: no limit is kept, and f has no figures */
	struct run_figures f;
};

/* The subject of a curve: a method, or a run that has the costs of a method. */
struct subject {
	struct run *base; /* loaded, but it does not run; its methods are subjects of their own */
	size_t i;	  /* method of base */
	bool dense;
	struct point *point; /* [n] by x */
	size_t n, cap;
	struct point *best; /* NULL: none */
	double failed;	    /* rate: the lowest one above the best that failed, 0: none did */
	/* The interval of 95 % of the best; NaN: none, and why; "": it was not asked for. */
	double lo, hi;
	char no_interval[200];
	struct rates_found *replicate; /* [SEARCH_REPLICATES] of resamples; NULL: no interval */
};

struct search_kind;

/* Replicas; prefill 0: each serves both. */
struct engines {
	int64_t prefill, decode;
};

struct search {
	struct search_args a;
	struct slo slo;
	const struct search_kind *kind;
	struct opt_group own; /* of a */
	int argc;
	char **argv, *cmdline;
	struct run **base; /* [n_base] one for each of --costs, or one; the first owns the trace */
	size_t n_base, cap_base;
	struct request *req; /* [trace->n] of the trace as it was read */
	int64_t shift_ns;    /* --shift, which follows the rate */
	/* Of a search for GPUs: tensor parallel sizes to try, and the first of them. */
	int64_t tps[SEARCH_TPS];
	size_t n_tp, tp_first;
	int64_t tp;	   /* of the next point; 0: that of the command line or of the costs */
	int64_t gpus_hint; /* GPUs that another method or the engine takes; 0: not known */
	struct engines engines_hint; /* ... if prefill and decodes are apart; prefill 0: not */
	int64_t least_ok;	     /* requests that a point has to serve to be kept; 0: any */
	struct subject *subject;
	size_t n_subject;
	struct resampler *resampler; /* of the trace; NULL: not open yet */
	int replicate;		     /* number of the resample in base[0], from 1; 0: none */
	int64_t points_ns;	     /* how long the points took, of which there are... */
	int n_points;
	bool header;		       /* is printed */
	const struct backend *backend; /* once a point has run */
};

/* One action of the command. */
struct search_kind {
	const char *name;   /* "rate"; a point is "rate 2.5" */
	const char *option; /* of the run, which it sets */
	const char *base;   /* its value where inputs are loaded; NULL: not given */
	bool scales;	    /* the trace, to the rate of each point */
	bool gpus;	    /* points are numbers of GPUs */
	/* Check the options, parsed, and set defaults of s->a. */
	enum ar_status (*check)(struct search *s, struct run_options *o, struct ar_err *err);
	/* Add all points of u, and set its best one. */
	enum ar_status (*find)(struct search *s, struct subject *u, struct ar_err *err);
	/* Search a resample of the requests.  *f has the answer for the requests themselves, where
	 * the search begins, and gets that for the resample.  A value is above 0, unless the end of
	 * the search bounds it.  NULL: no intervals. */
	enum ar_status (*again)(struct search *s, struct subject *u, struct rates_found *f,
				struct ar_err *err);
	void (*curve)(const struct search *s, const struct subject *u);
	void (*verdict)(const struct search *s, const struct subject *u);
	void (*summary)(const struct search *s); /* a line for each subject */
};
extern const struct search_kind search_rate, search_chunk, search_gpus;

/* opts: of a struct search_args. */
enum ar_status search_run(const struct search_kind *kind, const struct opt *opts, int argc,
			  char **argv, struct ar_err *err);

/* Run subject u with the option of the search at x, written as text, and add the point.  *kept: its
 * limits with a percentile are kept.  Where the policy's engine fails, a warning says so. */
enum ar_status search_point(struct search *s, struct subject *u, double x, const char *text,
			    bool *kept, struct ar_err *err);

/* ... with several options, which end with name NULL; x is the number that they stand for. */
enum ar_status search_point_of(struct search *s, struct subject *u, double x,
			       const struct run_setting *set, bool *kept, struct ar_err *err);

/* search_interval.c: find the interval of the best of u, which has been found, or why it has
 * none. */
enum ar_status search_interval(struct search *s, struct subject *u, struct ar_err *err);

/* search_json.c: the document of --json, owned by the caller.  NULL: no memory. */
cJSON *search_json(const struct search *s);
/* The best of u over that of the first subject; NaN: one of them is not known. */
double search_ratio(const struct search *s, const struct subject *u);
/* Its interval of 95 %; false: there is none. */
bool search_ratio_interval(const struct search *s, const struct subject *u, double *lo, double *hi);

/* search_print.c: the columns of a curve for limits with a percentile; notes on how far they can be
 * trusted. */
void search_print_name(const struct subject *u); /* it can be foreign */
void search_print_heads(const struct search *s);
void search_print_limits(const struct search *s, const struct point *p);
void search_print_ms(double ns);		/* a column; NaN: "-" */
const char *search_kept(const struct point *p); /* "yes", "no" or "fails" */
/* The rest of a point's line: requests done a second, limits, whether they are kept. */
void search_print_done(const struct search *s, const struct point *p);
void search_print_range(double lo, double hi); /* a column; lo NaN: empty */
void search_print_interval(const struct search *s, const struct subject *u, const char *unit);
void search_print_notes(const struct search *s);

#endif
