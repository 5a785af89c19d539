/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of descriptors: each descriptor has the members that it must have, as its other members
 * say.  A failure names the member and says how to mend it.  Descriptors of selectors: see
 * t-selectors.c. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "kernels/drop/dropper.h"
#include "kernels/exec/executor.h"
#include "kernels/methods/method.h"
#include "kernels/methods/shapes.h"
#include "model/arch.h"
#include "replay/engine/backend.h"
#include "replay/host/host.h"
#include "replay/sched/policy.h"
#include "src/export/export.h"
#include "src/report/report.h"
#include "src/report/writer.h"
#include "src/tune/tune.h"
#include "tests/tap.h"
#include "traces/importers/import.h"

struct rule {
	bool bad;
	const char *member, *want;
};

/* Return the first member that a descriptor lacks or that is wrong; NULL: it is whole. */
static const char *first_bad(const char *kind, const char *name, const struct rule *rule, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rule[i].bad) {
			diag("%s '%s': .%s: %s", kind, name ? name : "", rule[i].member,
			     rule[i].want);
			return rule[i].member;
		}
	return NULL;
}

#define CHECK(kind, name, ...) \
	first_bad(kind, name, (const struct rule[]){ __VA_ARGS__ }, \
		  sizeof((const struct rule[]){ __VA_ARGS__ }) / sizeof(struct rule))

/* Names stand in options, files and lists. */
static bool is_name(const char *s)
{
	return s && *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(s);
}

#define NAME(x) \
	{ \
		!is_name((x)->name), "name", "want a word of a-z, 0-9, '-' and '.'" \
	}
#define TEXT(x, member, want) \
	{ \
		!(x)->member || !*(x)->member, #member, want \
	}
#define HOOK(x, member, want) \
	{ \
		!(x)->member, #member, want \
	}

/* For the tests of a table: the descriptor of this name is whole.  bad: its faulty member, or
 * NULL. */
static void whole(const char *kind, const char *name, const char *bad)
{
	is_str(bad, NULL, "%s %s has what it must have", kind, name);
}

/* A copy of a descriptor without a member is refused. */
#define REFUSED(check, type, from, member_, ...) \
	do { \
		type copy_ = *(from); \
		copy_.member_ = __VA_ARGS__; \
		is_str(check(&copy_), #member_, #check " asks for ." #member_); \
	} while (0)

/* ---- traces and models ---- */

static const char *check_importer(const struct importer *f)
{
	const unsigned uses = USES_CONTEXT | USES_IMAGES | USES_COMPONENTS | USES_UNIT | USES_WARM;

	return CHECK("importer", f->name, NAME(f), TEXT(f, title, "name the format in one line"),
		     { !f->need || (!*f->need && !f->sniff), "need",
		       "list the fields that every record has, or set sniff" },
		     { f->uses & ~uses, "uses", "want USES_... or'ed" },
		     HOOK(f, record, "add the requests of a record"));
}

static void test_importers(void)
{
	for (int i = 0; importers[i]; i++)
		whole("importer", importers[i]->name, check_importer(importers[i]));
	REFUSED(check_importer, struct importer, importers[0], name, "A");
	REFUSED(check_importer, struct importer, importers[0], title, "");
	REFUSED(check_importer, struct importer, importers[0], need, NULL);
	REFUSED(check_importer, struct importer, importers[0], uses, 1u << 31);
	REFUSED(check_importer, struct importer, importers[0], record, NULL);
}

static const char *check_arch(const struct arch *a)
{
	return CHECK("architecture", a->name,
		     { !a->name || !*a->name, "name", "want the name of the family" },
		     { !a->hf_names || !*a->hf_names, "hf_names",
		       "list values of model_type and architectures" },
		     { a->defaults && !a->defaults->key, "defaults", "NULL: there are none" });
}

static void test_archs(void)
{
	for (int i = 0; archs[i]; i++)
		whole("architecture", archs[i]->name, check_arch(archs[i]));
	REFUSED(check_arch, struct arch, archs[0], name, NULL);
	REFUSED(check_arch, struct arch, archs[0], hf_names, NULL);
}

/* ---- methods ---- */

static bool params_fit(const struct opt *params, size_t size)
{
	for (const struct opt *o = params; o && o->name; o++)
		if (o->off >= size)
			return false;
	return true;
}

static const char *check_executor(const struct executor *e)
{
	unsigned shapes = 0;

	for (const struct selection_shape *s = selection_shapes; s->bit; s++)
		shapes |= s->bit;
	return CHECK("executor", e->name, NAME(e), TEXT(e, title, "say in one line what it runs"),
		     TEXT(e, origin, "say which paper or code it follows"),
		     TEXT(e, kernel, "name its family in kernels/support.c"),
		     { !e->takes || e->takes & ~shapes, "takes", "want SHAPE_... or'ed" },
		     { !e->plan && !e->one_row, "plan", "cut a batch into tiles" },
		     { !e->phase, "phase", "say what its attention is counted as" },
		     HOOK(e, ref, "kernels need a reference to be compared with"),
		     { e->move && !e->copies, "copies", "it has a move()" },
		     { HAVE_CUDA && e->copies && !e->move, "move", "it says that it copies" },
		     { HAVE_CUDA && !e->enqueue, "enqueue", "an executor has kernels" },
		     { e->enqueue && !e->work_bytes, "work_bytes",
		       "say how much device memory enqueue needs" });
}

static void test_executors(void)
{
	for (int i = 0; executors[i]; i++)
		whole("executor", executors[i]->name, check_executor(executors[i]));
	REFUSED(check_executor, struct executor, executors[0], origin, NULL);
	REFUSED(check_executor, struct executor, executors[0], kernel, NULL);
	REFUSED(check_executor, struct executor, executors[0], takes, 0);
	REFUSED(check_executor, struct executor, executors[0], plan, NULL);
	REFUSED(check_executor, struct executor, executors[0], phase, PHASE_NONE);
	REFUSED(check_executor, struct executor, executors[0], ref, NULL);
}

/* Of each band the text is of this dropper and has a place for the values. */
static bool bands_fit(const struct dropper *d)
{
	const struct dropper_band *b = d->band;
	size_t n = strlen(d->name);

	for (; b && b->text; b++)
		if (strncmp(b->text, d->name, n) || b->text[n] != ':' || !strchr(b->text, '%') ||
		    !b->value || !b->strict || !b->loose || !(b->slack >= 0 && b->slack < 0.1))
			return false;
	return b && b != d->band;
}

static const char *check_dropper(const struct dropper *d)
{
	return CHECK("dropper", d->name, NAME(d), TEXT(d, title, "say in one line what it drops"),
		     TEXT(d, origin, "say which paper or code it follows"),
		     HOOK(d, params, "want a table that ends with { 0 }"),
		     { !params_fit(d->params, d->param_size), "param_size",
		       "want the size of the struct that params set" },
		     HOOK(d, open, "choose its layers"), HOOK(d, close, "release what open made"),
		     HOOK(d, acts_after, "say at which layers it drops"),
		     HOOK(d, ref, "kernels need a reference to be compared with"),
		     { !bands_fit(d), "band",
		       "give values between which reference and kernels keep the same rows" },
		     { !d->revives != !d->revive_ref, "revive_ref", "it goes with revives" },
		     { HAVE_CUDA && !d->enqueue, "enqueue", "a dropper has kernels" },
		     { HAVE_CUDA && !d->revives != !d->revive_enqueue, "revive_enqueue",
		       "it goes with revives" },
		     { d->enqueue && !d->work_bytes, "work_bytes",
		       "say how much device memory enqueue needs" });
}

static void test_droppers(void)
{
	static const struct dropper_band bare[] = { { "uniprefill", "1", "1", "1", 0 }, { 0 } };

	for (int i = 0; droppers[i]; i++)
		whole("dropper", droppers[i]->name, check_dropper(droppers[i]));
	REFUSED(check_dropper, struct dropper, droppers[0], param_size, 1);
	REFUSED(check_dropper, struct dropper, droppers[0], open, NULL);
	REFUSED(check_dropper, struct dropper, droppers[0], acts_after, NULL);
	REFUSED(check_dropper, struct dropper, droppers[0], ref, NULL);
	REFUSED(check_dropper, struct dropper, droppers[0], band, NULL);
	REFUSED(check_dropper, struct dropper, droppers[0], band, bare);
	REFUSED(check_dropper, struct dropper, dropper_find("uniprefill"), revive_ref,
		dropper_find("lazyllm")->revive_ref);
}

static const char *check_union(const struct union_rule *u)
{
	return CHECK("union", u->name, NAME(u), TEXT(u, title, "say in one line what it unites"));
}

static const char *check_method_name(const struct method_name *m)
{
	return CHECK("method", m->name, TEXT(m, title, "say in one line what it does"),
		     TEXT(m, spec, "want select=.../union=.../exec=..."),
		     TEXT(m, origin, "say which paper or code it follows"));
}

static void test_names(void)
{
	for (const struct union_rule *u = unions; u->name; u++)
		whole("union", u->name, check_union(u));
	REFUSED(check_union, struct union_rule, unions, title, NULL);
	for (const struct method_name *m = method_names; m->name; m++)
		whole("method", m->name, check_method_name(m));
	REFUSED(check_method_name, struct method_name, method_names, origin, "");
}

/* ---- replay ---- */

static bool has_preset(const char *host)
{
	char path[512];

	return !host || host_find(host, path, sizeof path);
}

/* Rows by falling memory; the last fits all GPUs. */
static bool are_defaults(const struct policy *p)
{
	const struct engine_defaults *d = p->defaults;

	for (; d && d->from_bytes; d++)
		if (d[1].from_bytes > d->from_bytes)
			return false;
	for (d = p->defaults; d; d = d->from_bytes ? d + 1 : NULL)
		if (d->tokens < 1 || d->requests < 1 || d->requests > d->tokens ||
		    d->block_tok < 1 || d->captured < 1 || d->captured_per_req < 1 ||
		    !(d->memory_share > 0 ? d->memory_share < 1 : p->memory_share != NULL))
			return false;
	return p->defaults;
}

static const char *check_policy(const struct policy *p)
{
	return CHECK("policy", p->name, NAME(p), TEXT(p, title, "name the engine in one line"),
		     TEXT(p, origin, "say which version of which code it follows"),
		     { p->also && !is_name(p->also), "also", "want another name, or NULL" },
		     { p->can & ~(unsigned)POLICY_SETTINGS, "can", "want POLICY_... or'ed" },
		     { !(p->watermark >= 0 && p->watermark < 1), "watermark",
		       "want a share of the blocks" },
		     { !are_defaults(p), "defaults",
		       "say what the engine takes where its user sets nothing" },
		     { !has_preset(p->host), "host", "add the preset to replay/host/, or NULL" },
		     { p->groups && !(p->groups->spread >= 1), "groups",
		       "want a spread of at least 1, or no rules for layers that differ" },
		     HOOK(p, slots, "say for how many positions a request has blocks"),
		     HOOK(p, unfit, "say which requests can never run"),
		     HOOK(p, requeue, "say where a preempted request goes"),
		     { p->begin && !p->memory_size, "memory_size", "begin initialises it" },
		     HOOK(p, compose, "plan an iteration"));
}

static void test_policies(void)
{
	static const struct kv_rules narrow = { .spread = 0.5 };

	for (int i = 0; policies[i]; i++)
		whole("policy", policies[i]->name, check_policy(policies[i]));
	REFUSED(check_policy, struct policy, policies[0], title, NULL);
	REFUSED(check_policy, struct policy, policies[0], also, "");
	REFUSED(check_policy, struct policy, policies[0], can, 1);
	REFUSED(check_policy, struct policy, policies[0], watermark, 1);
	REFUSED(check_policy, struct policy, policies[0], host, "no-such-engine");
	REFUSED(check_policy, struct policy, policies[0], groups, &narrow);
	REFUSED(check_policy, struct policy, policies[0], defaults, NULL);
	REFUSED(check_policy, struct policy, policies[0], slots, NULL);
	REFUSED(check_policy, struct policy, policies[0], unfit, NULL);
	REFUSED(check_policy, struct policy, policies[0], requeue, NULL);
	REFUSED(check_policy, struct policy, policies[0], compose, NULL);
}

static const char *check_backend(const struct backend *b)
{
	return CHECK("backend", b->name, NAME(b), TEXT(b, title, "say in one line what runs"),
		     { !params_fit(b->opts, b->opts_size), "opts_size",
		       "want the size of the struct that opts set" },
		     { (b->uses_gpu || b->modelled) && !b->needs_model, "needs_model",
		       "kernels are of a model, also modelled ones" },
		     { b->uses_gpu != !!b->gpu, "gpu", "it goes with uses_gpu" },
		     HOOK(b, open, "make the backend"), HOOK(b, close, "release it"),
		     HOOK(b, start, "allocate for the blocks"), HOOK(b, run, "run a batch"),
		     HOOK(b, drop, "forget a request"),
		     { b->compare && (!b->needs_model || b->modelled), "compare",
		       "it is for backends that compute" },
		     { !b->kept != !b->layer_work, "layer_work", "it goes with kept" });
}

static void test_backends(void)
{
	for (int i = 0; backends[i]; i++)
		whole("backend", backends[i]->name, check_backend(backends[i]));
	REFUSED(check_backend, struct backend, backend_find("cost"), opts_size, 0);
	REFUSED(check_backend, struct backend, backend_find("roofline"), needs_model, false);
	REFUSED(check_backend, struct backend, backend_find("cost"), open, NULL);
	REFUSED(check_backend, struct backend, backend_find("cost"), close, NULL);
	REFUSED(check_backend, struct backend, backend_find("cost"), start, NULL);
	REFUSED(check_backend, struct backend, backend_find("cost"), run, NULL);
	REFUSED(check_backend, struct backend, backend_find("cost"), drop, NULL);
	REFUSED(check_backend, struct backend, backend_find("cpu"), layer_work, NULL);
}

/* ---- outputs ---- */

static const char *check_writer(const struct report_writer *w)
{
	return CHECK("writer", w->name, NAME(w), HOOK(w, row, "write a row"));
}

static const char *check_exporter(const struct exporter *e)
{
	return CHECK("exporter", e->name, NAME(e), HOOK(e, write, "write the runs to a file"));
}

#define EXPORT(name, help) extern const struct exporter export_##name;
#include "src/export/export_list.h"
#undef EXPORT

static void test_outputs(void)
{
	static const struct exporter *const exporters[] = {
#define EXPORT(name, help) &export_##name,
#include "src/export/export_list.h"
#undef EXPORT
	};

	for (int i = 0; writers[i]; i++)
		whole("writer", writers[i]->name, check_writer(writers[i]));
	REFUSED(check_writer, struct report_writer, writers[0], name, NULL);
	REFUSED(check_writer, struct report_writer, writers[0], row, NULL);
	for (size_t i = 0; i < sizeof exporters / sizeof *exporters; i++) {
		whole("exporter", export_opts[i].name, check_exporter(exporters[i]));
		is_str(exporters[i]->name, export_opts[i].name,
		       "exporter %s has the name of its option", export_opts[i].name);
	}
	REFUSED(check_exporter, struct exporter, exporters[0], write, NULL);
}

static const char *check_section(const struct section *s)
{
	return CHECK("section", s->name, TEXT(s, name, "want the name of its file"),
		     TEXT(s, sql, "want one statement"),
		     { s->title && !*s->title, "title", "NULL: it shows nothing" });
}

static void test_sections(void)
{
	for (const struct section *s = sections; s->name; s++)
		whole("section", s->name, check_section(s));
	REFUSED(check_section, struct section, sections, sql, "");
	REFUSED(check_section, struct section, sections, title, "");
}

static const char *check_target(const struct tune_target *t)
{
	return CHECK("target", t->name, NAME(t), TEXT(t, title, "say in one line what it is"),
		     { t->figure >= sizeof(struct tune_figures), "figure",
		       "want a member of struct tune_figures" },
		     { !(t->min < t->max), "max", "want a range of the figure" },
		     { !(t->near > 0), "near", "say how near is near enough" },
		     { t->sample != TUNE_CAPTURES && t->sample != TUNE_PROMPTS, "sample",
		       "say what it is measured on" },
		     HOOK(t, measure, "measure settings"));
}

static void test_targets(void)
{
	for (const struct tune_target *t = tune_targets; t->name; t++)
		whole("target", t->name, check_target(t));
	REFUSED(check_target, struct tune_target, tune_targets, figure,
		sizeof(struct tune_figures));
	REFUSED(check_target, struct tune_target, tune_targets, max, 0);
	REFUSED(check_target, struct tune_target, tune_targets, near, 0);
	REFUSED(check_target, struct tune_target, tune_targets, sample, 0);
	REFUSED(check_target, struct tune_target, tune_targets, measure, NULL);
}

int main(void)
{
	plan(0);
	test_importers();
	test_archs();
	test_executors();
	test_droppers();
	test_names();
	test_policies();
	test_backends();
	test_outputs();
	test_sections();
	test_targets();
	return done_testing();
}
