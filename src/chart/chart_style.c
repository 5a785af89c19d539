/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, markers and dashes.  The first colours are from Okabe and Ito ("Color Universal Design",
 * 2008).  Some are darker or lighter, as their contrast with the background would be below 3.  The
 * colours of parts are muted, so that none is taken for a method's. */
#include "config.h"
#include "src/chart/chart_item.h"

const char chart_css[] =
	":root{--bg:#fff;--fg:#1a1a1a;--soft:#595959;--grid:#e2e2e2;--heat:#334155;"
	"--c0:#767676;--c1:#0072b2;--c2:#d55e00;--c3:#6d3fc0;--c4:#00845f;--c5:#b87a00;"
	"--c6:#b5568f;--c7:#007f8c;--c8:#3d4fae;--c9:#8a7d00;--c10:#7a4b1e;--c11:#b3123f;"
	"--c12:#4f7d14;--c13:#a0359f;--c14:#2a8cc4;--c15:#1a1a1a;--c16:#64748b;--c17:#5b7fa8;"
	"--c18:#b0803c;--c19:#8f5a3c;--c20:#6f9068;--c21:#4f8050;--c22:#8a78a8;--c23:#9a86b2;"
	"--c24:#6a588c;--c25:#3c5a80;--c26:#82914a;--c27:#8a6a3c;--c28:#2f5d45;--c29:#4f8a80;"
	"--c30:#8b909a;--c31:#b42318;--c32:#4a6d7c;--c33:#a06a74;--c34:#75805f;"
	"--c35:#3f7a6a;--c36:#6b5b4b;"
	"--c37:#9333ea;--c38:#5f6b00;--c39:#d63a72;--c40:#1e5aa8;--c41:#a14f00;"
	"--c42:#00696e;--c43:#c026d3;--c44:#2e7d32;--c45:#56788f}\n"
	"@media (prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e8e8e8;--soft:#a8a8a8;"
	"--grid:#34373d;--heat:#cbd5e1;--c0:#9a9a9a;--c1:#4fa8e0;--c2:#ff8236;--c3:#b39dff;"
	"--c4:#1dc08f;--c5:#e69f00;--c6:#dd8dbd;--c7:#35c6d6;--c8:#8fa2ff;--c9:#f0e442;"
	"--c10:#c99863;--c11:#ff6b8b;--c12:#9bd14f;--c13:#e07be0;--c14:#7cc8f2;--c15:#f2f2f2;"
	"--c16:#94a3b8;--c17:#6f93bd;--c18:#c49a62;--c19:#b9866a;--c20:#7fa37f;--c21:#5c9a63;"
	"--c22:#9c8bb8;--c23:#b7a6cc;--c24:#8d7bb0;--c25:#a6c1e0;--c26:#a9b96f;--c27:#a88a5c;"
	"--c28:#86c29a;--c29:#6fa79b;--c30:#737983;--c31:#f97066;--c32:#83a9ba;--c33:#c9949d;"
	"--c34:#a3ad8c;--c35:#72ac9b;--c36:#a39282;"
	"--c37:#c58bff;--c38:#c8d65a;--c39:#ff8fb3;--c40:#7fb2ff;--c41:#f0a35e;"
	"--c42:#4fd1d9;--c43:#f08cff;--c44:#7fd883;--c45:#9cc3d9}}\n"
	"@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--grid:#ddd;--heat:#334155;"
	"--c0:#767676;--c1:#0072b2;--c2:#d55e00;--c3:#6d3fc0;--c4:#00845f;--c5:#b87a00;"
	"--c6:#b5568f;--c7:#007f8c;--c8:#3d4fae;--c9:#8a7d00;--c10:#7a4b1e;--c11:#b3123f;"
	"--c12:#4f7d14;--c13:#a0359f;--c14:#2a8cc4;--c15:#1a1a1a;--c16:#64748b;--c17:#5b7fa8;"
	"--c18:#b0803c;--c19:#8f5a3c;--c20:#6f9068;--c21:#4f8050;--c22:#8a78a8;--c23:#9a86b2;"
	"--c24:#6a588c;--c25:#3c5a80;--c26:#82914a;--c27:#8a6a3c;--c28:#2f5d45;--c29:#4f8a80;"
	"--c30:#8b909a;--c31:#b42318;--c32:#4a6d7c;--c33:#a06a74;--c34:#75805f;"
	"--c35:#3f7a6a;--c36:#6b5b4b;"
	"--c37:#9333ea;--c38:#5f6b00;--c39:#d63a72;--c40:#1e5aa8;--c41:#a14f00;"
	"--c42:#00696e;--c43:#c026d3;--c44:#2e7d32;--c45:#56788f}}\n"
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
	".chart .bar{fill:currentColor}.chart .pale{opacity:.35}\n"
	".chart .edge{stroke:var(--bg);stroke-width:.6;vector-effect:non-scaling-stroke}\n"
	".chart .many{opacity:.3}.chart .none{fill:var(--bg);stroke:var(--soft);stroke-width:.7}\n"
	".chart .heat{fill:var(--heat)}.chart .chunk{stroke:var(--fg);stroke-dasharray:2}\n"
	".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}"
	".c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}"
	".c8{color:var(--c8)}.c9{color:var(--c9)}.c10{color:var(--c10)}"
	".c11{color:var(--c11)}.c12{color:var(--c12)}.c13{color:var(--c13)}"
	".c14{color:var(--c14)}.c15{color:var(--c15)}.c16{color:var(--c16)}"
	".c17{color:var(--c17)}.c18{color:var(--c18)}.c19{color:var(--c19)}"
	".c20{color:var(--c20)}.c21{color:var(--c21)}.c22{color:var(--c22)}"
	".c23{color:var(--c23)}.c24{color:var(--c24)}.c25{color:var(--c25)}"
	".c26{color:var(--c26)}.c27{color:var(--c27)}.c28{color:var(--c28)}"
	".c29{color:var(--c29)}.c30{color:var(--c30)}.c31{color:var(--c31)}"
	".c32{color:var(--c32)}.c33{color:var(--c33)}.c34{color:var(--c34)}"
	".c35{color:var(--c35)}.c36{color:var(--c36)}.c37{color:var(--c37)}"
	".c38{color:var(--c38)}.c39{color:var(--c39)}.c40{color:var(--c40)}"
	".c41{color:var(--c41)}.c42{color:var(--c42)}.c43{color:var(--c43)}"
	".c44{color:var(--c44)}.c45{color:var(--c45)}\n"
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

void chart_put_key(int style, FILE *f)
{
	fputs("<svg class=\"chart key\" width=\"14\" height=\"14\">", f);
	chart_marker(style, 7, 7, 1, false, f);
	fputs("</svg>", f);
}
