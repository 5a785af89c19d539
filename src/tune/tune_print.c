/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "base/json.h"
#include "base/text.h"
#include "src/tune/tune.h"

static const char *const how_names[] = { [TUNE_REACHED] = "reached",
					 [TUNE_BEYOND] = "beyond",
					 [TUNE_JUMPED] = "jumped",
					 [TUNE_GIVEN] = "given",
					 [TUNE_FIXED] = "fixed" };

static const struct column {
	const char *heading;
	size_t figure; /* offset in tune_figures */
} columns[] = {
#define X(name, key, heading) { heading, offsetof(struct tune_figures, name) },
	TUNE_FIGURES(X)
#undef X
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double figure(const struct tuned *t, const struct column *c)
{
	return *(const double *)((const char *)&t->figures + c->figure);
}

/* Whether any of n methods has the figure. */
static bool is_known(const struct column *c, const struct tuned *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isnan(figure(&t[i], c)))
			return true;
	return false;
}

static void print_figure(double x, FILE *f)
{
	if (isnan(x))
		fprintf(f, "%10s", "-");
	else
		fprintf(f, "%10.4f", x);
}

static void print_row(const struct tuned *t, const bool *shown, FILE *f)
{
	for (int c = 0; c < COLUMNS; c++)
		if (shown[c])
			print_figure(figure(t, &columns[c]), f);
	if (t->threshold)
		fprintf(f, "%7d  ", t->steps);
	else
		fprintf(f, "%7s  ", "");
	text_put(t->setting, f);
	fputs(t->how == TUNE_GIVEN ? " (as given)\n" :
	      t->how == TUNE_FIXED ? " (no threshold)\n" :
				     "\n",
	      f);
}

static void print_note(const struct tune_goal *g, const struct tuned *t, FILE *f)
{
	const char *target = g->target->name;

	if (t->how == TUNE_BEYOND || t->how == TUNE_JUMPED) {
		text_put(t->method, f);
		fprintf(f, ": no %s has %s %s%g; the nearest, %.6g, has %.4f%s\n", t->threshold,
			target, g->target->least ? "at least " : "", g->want, t->value,
			tune_figure(g, &t->figures),
			t->how == TUNE_JUMPED ? ", and the next one is on the other side" :
						", at an end of its range");
	}
	if (t->bends) {
		text_put(t->method, f);
		fprintf(f, ": %s both rises and falls with %s, so other values may have it too\n",
			target, t->threshold);
	}
}

void tune_print(const struct tune_goal *g, const struct tuned *t, size_t n, FILE *f)
{
	bool shown[COLUMNS];

	for (int c = 0; c < COLUMNS; c++) {
		shown[c] = is_known(&columns[c], t, n);
		if (shown[c])
			fprintf(f, "%10s", columns[c].heading);
	}
	fprintf(f, "%7s  method\n", "steps");
	for (size_t i = 0; i < n; i++)
		print_row(&t[i], shown, f);
	for (size_t i = 0; i < n; i++)
		print_note(g, &t[i], f);
}

cJSON *tuned_json(const struct tuned *t)
{
	cJSON *o = cJSON_CreateObject();
	bool done = o && json_add(o, "method", cJSON_CreateString(t->method)) &&
		    json_add(o, "setting", cJSON_CreateString(t->setting)) &&
		    json_add(o, "result", cJSON_CreateString(how_names[t->how])) &&
		    (!t->threshold || (json_add(o, "threshold", cJSON_CreateString(t->threshold)) &&
				       json_add_real(o, "value", t->value) &&
				       json_add(o, "steps", cJSON_CreateNumber(t->steps)) &&
				       json_add(o, "monotone", cJSON_CreateBool(!t->bends))));

#define X(name, key, heading) done = done && json_add_real(o, key, t->figures.name);
	TUNE_FIGURES(X)
#undef X
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}

cJSON *tune_json(const struct tuned *t, size_t n)
{
	cJSON *list = cJSON_CreateArray();

	for (size_t i = 0; i < n && list; i++)
		if (!json_add(list, NULL, tuned_json(&t[i]))) {
			cJSON_Delete(list);
			list = NULL;
		}
	return list;
}
