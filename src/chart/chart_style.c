/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, markers and dashes.  The colours are from Okabe and Ito ("Color Universal Design",
 * 2008).  Some are darker or lighter, as their contrast with the background would be below 3. */
#include "config.h"
#include "src/chart/chart_item.h"

const char chart_css[] =
	":root{--bg:#fff;--fg:#1a1a1a;--soft:#595959;--grid:#e2e2e2;--c0:#767676;--c1:#0072b2;"
	"--c2:#d55e00;--c3:#00845f;--c4:#b5568f;--c5:#b87a00;--c6:#2a8cc4;--c7:#8a7d00;"
	"--c8:#1a1a1a}\n"
	"@media (prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e8e8e8;--soft:#a8a8a8;"
	"--grid:#34373d;--c0:#9a9a9a;--c1:#4fa8e0;--c2:#ff8236;--c3:#1dc08f;--c4:#dd8dbd;"
	"--c5:#e69f00;--c6:#7cc8f2;--c7:#f0e442;--c8:#f2f2f2}}\n"
	"@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--grid:#ddd;--c0:#767676;--c1:#0072b2;"
	"--c2:#d55e00;--c3:#00845f;--c4:#b5568f;--c5:#b87a00;--c6:#2a8cc4;--c7:#8a7d00;"
	"--c8:#000}}\n"
	".chart{font:12px sans-serif;fill:var(--fg);color:var(--fg)}\n"
	".chart .back{fill:var(--bg)}.chart .soft{fill:var(--soft)}.chart .end{text-anchor:end}\n"
	".chart .mid{text-anchor:middle}.chart .head{font-weight:bold}\n"
	".chart .title{font-size:14px}.chart .frame{fill:none;stroke:var(--soft);stroke-width:.7}\n"
	".chart .grid{stroke:var(--grid);stroke-width:1}\n"
	".chart .rule{stroke:var(--fg);stroke-width:1.2;stroke-dasharray:6 4}\n"
	".chart .line{fill:none;stroke:currentColor;stroke-width:1.7;"
	"vector-effect:non-scaling-stroke}\n"
	".chart .mark{fill:currentColor;stroke:currentColor;stroke-width:1}\n"
	".chart .open{fill:none;stroke:currentColor;stroke-width:1.4}\n"
	".chart .ring{fill:none;stroke:var(--fg);stroke-width:1.3}\n"
	".chart .bar{fill:currentColor}\n"
	".chart .edge{stroke:var(--bg);stroke-width:.6;vector-effect:non-scaling-stroke}\n"
	".chart .none{fill:var(--bg);stroke:var(--soft);stroke-width:.7}\n"
	".chart .heat{fill:var(--c1)}.chart .chunk{stroke:var(--c2);stroke-dasharray:2}\n"
	".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}"
	".c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}"
	".c8{color:var(--c8)}\n"
	".d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 2}.d3{stroke-dasharray:8 3 2 3}"
	".d4{stroke-dasharray:4 2}.d5{stroke-dasharray:10 3 2 3 2 3}\n";

const char chart_defs[] =
	"<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
	"patternTransform=\"rotate(45)\"><rect width=\"1.3\" height=\"5\" "
	"fill=\"var(--bg)\"/></pattern></defs>\n";

enum { MARKERS = 7, DASHES = 6 };

int chart_colour(int style)
{
	return style < 0 ? 0 : style % CHART_TURN;
}

static int turn(int style)
{
	return style < 0 ? 0 : style / CHART_TURN;
}

void chart_put_class(int style, FILE *f)
{
	int dash = (chart_colour(style) + turn(style)) % DASHES;

	fprintf(f, "c%d", chart_colour(style));
	if (dash)
		fprintf(f, " d%d", dash);
}

void chart_marker(int style, double x, double y, double scale, bool ring, FILE *f)
{
	static const char *const path[MARKERS] = { "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
						   "m-3.5 -3.5h7v7h-7z",
						   "m0 -5l5 5l-5 5l-5 -5z",
						   "m0 -4.5l4.5 8h-9z",
						   "m0 4.5l4.5 -8h-9z",
						   "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
						   "m-5 -2h10v4h-10z" };
	int shape = (chart_colour(style) + turn(style)) % MARKERS;

	fprintf(f,
		"<path class=\"%s c%d\" transform=\"translate(%.1f %.1f)scale(%g)\" d=\"M0 0%s\"/>",
		turn(style) % 2 ? "open" : "mark", chart_colour(style), x, y, scale, path[shape]);
	if (ring)
		fprintf(f, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"8\"/>", x, y);
}

void chart_swatch(const struct chart_item *i, double x, double y, FILE *f)
{
	switch (i->geom) {
	case CHART_RULE: fprintf(f, "<path class=\"rule\" d=\"M%.1f %.1fh28\"/>", x, y); break;
	case CHART_LINE:
	case CHART_STEPS:
		fputs("<path class=\"line ", f);
		chart_put_class(i->style, f);
		fprintf(f, "\" d=\"M%.1f %.1fh28\"/>", x, y);
		chart_marker(i->style, x + 14, y, 1, false, f);
		break;
	case CHART_GROUP:
	case CHART_POINT: chart_marker(i->style, x + 14, y, 1, false, f); break;
	default:
		fprintf(f,
			"<rect class=\"%s c%d\" x=\"%.1f\" y=\"%.1f\" width=\"28\" height=\"12\"/>",
			i->style < 0 ? "none" : "bar", chart_colour(i->style), x, y - 6);
		if (i->hatch)
			fprintf(f,
				"<rect fill=\"url(#hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"28\" "
				"height=\"12\"/>",
				x, y - 6);
	}
}
