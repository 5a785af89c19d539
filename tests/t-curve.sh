#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Accuracy-density curves: one command from a capture to a drawing.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import csv, json' 2>/dev/null; then
	echo '1..0 # SKIP no python'
	exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
cd "$tmp" || exit 99
arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
plot() { # plot CSV SVG [POINTS]
	"$ATTNREPLAY" curve --svg "$2" ${3:+--points "$3"} "$1"
}
xml()  { "$python" -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$1"; }
points() { grep -c '^<g class="c[0-9]*"><title>' "$1"; }

# ---- the drawing, of invented rows ----

row() { # row METHOD LAYER DENSITY REL_L2 RECALL [SELECT UNION EXEC BLOCK]
	echo "\"a\",$2,512,256,cpu,\"$1\",\"{\"\"select\"\":\"\"${6:-s}\"\",\"\"union\"\":\"\"${7:-u}\"\",\"\"exec\"\":\"\"${8:-e}\"\"}\",,,,$3,,$4,,,$5,,${9:-128}"
}
bound() {
	row "select=oracle,density=$2/union=none/exec=blocksparse" "$1" "$2" 0.1 "$3" oracle none \
		blocksparse "${4:-128}"
}
heading() {
	echo capture,layer,context,chunk,backend,method,parameters,density_selected,density_q_block,density_group,density_executed,jaccard,rel_l2_mean,rel_l2_max,cosine_min,recall_mean,recall_min,block_tokens
}
{
	heading
	row a:x=1 0 0.4 0.1 0.5
	row a:x=1 1 0.6 0.3 0.7
	row a:x=2 0 1 0 1
	row 'select=s,y=1/union=u/exec=e' 0 0.2 0.5 0.25
} >made.csv
plot made.csv made.svg points.csv || exit 99
ok 'the drawing is XML' xml made.svg
is 'layers are averaged to a point a method, drawn in both panels' "$(points made.svg)" 6
is 'parameters of a method are joined' "$(grep -c '<g class="series">' made.svg)" 4
ok 'a composition is named by its parts' grep -q '>s/u/e<' made.svg
# 374 wide, of a density from 0.2 to 1 in logarithms with 0.05 of a decade at each end; recall 0.6 of
# 210 from below
ok 'points lie at the means' grep -q 'title>a:x=1: .*translate(209.7 84.0)' made.svg
is '... which can be had as a table' \
	"$(cat points.csv)" 'method,density_executed,rel_l2_mean,recall_mean
a:x=1,0.5,0.2,0.6
a:x=2,1,0,1
"select=s,y=1/union=u/exec=e",0.2,0.5,0.25'
heading >none.csv
ok 'without rows there is nothing to draw' fails 3 'none.csv: no rows' plot none.csv none.svg
ok '... and no file' [ ! -e none.svg ]
printf 'method,density_executed,rel_l2_mean\na,1,1\n' >lacks.csv
ok 'a column that lacks is named' fails 3 'lacks.csv:1: want the columns method, dens' \
	plot lacks.csv none.svg
{ cat points.csv; echo 'b,1,none,1'; } >words.csv
ok 'a value that is no number is named' fails 3 "words.csv:5: rel_l2_mean 'none' is no number" \
	plot words.csv none.svg
{ cat points.csv; echo 'b,1,2'; } >short.csv
ok 'a row that is cut is named' fails 3 'short.csv:5: the row has 3 fields' plot short.csv none.svg
ok 'a file that is not there is named' fails 3 'nowhere.csv: No such file' plot nowhere.csv none.svg
ok 'a name that is no text of XML is escaped' sh -c '
	printf "method,density_executed,rel_l2_mean,recall_mean\n<a&\033>,1,1,1\n" >odd.csv
	"$ATTNREPLAY" curve --svg odd.svg odd.csv && grep -q "&lt;a&amp;" odd.svg'
ok '... and the drawing is XML' xml odd.svg
ok 'no file is wrong usage' fails 2 'want one CSV file' "$ATTNREPLAY" curve --svg x.svg
ok 'so is nothing to write' fails 2 'nothing to write' "$ATTNREPLAY" curve made.csv
ok 'so are two outputs that are one' fails 2 'x.svg: given for two outputs' \
	"$ATTNREPLAY" curve --svg x.svg --points ./x.svg made.csv
plot points.csv again.svg twice.csv || exit 99
ok 'points can be drawn again' cmp made.svg again.svg
ok '... and are the same points' cmp points.csv twice.csv

{
	cat made.csv
	bound 0 0.2 0.5
	bound 0 0 0
} >bound.csv
plot bound.csv bound.svg || exit 99
ok 'the oracle has the colour of text' grep -q '>oracle, blocks of 128</title><path class="line c15 d3"' bound.svg
ok '... and says of which blocks' grep -q '>oracle, blocks of 128<' bound.svg
# which is at 0
ok 'a density of 0 is drawn at the edge' grep -q 'oracle.*density 0,.*translate(0.0 ' bound.svg

# ---- the upper bound, of invented rows: 0.5 at 0.2, 0.8 at 0.4 ----

compare() { "$python" "$srcdir/contrib/curve_bound.py" "$@"; }
against() { # against ROW...: rows beside the oracle's
	{ heading; bound 0 0.4 0.8; bound 0 0.2 0.5; for r; do eval "row $r"; done; } >points.csv
	compare points.csv >points
}
line() { awk -v n="$1" 'NR == n + 1 { print $3, $4, $5, $6 $7 }' points; }
below() { against 'a 0 0.3 0 0.6' 'b 0 0.2 0 0.4' 'c 0 0.7 0 0.9' 'd 0 1 0 1' 'e 0 0.1 0 0.1'; }
ok 'points below the oracle are right' below
is '... by the line through its two' "$(line 1)" '0.3000 0.6000 0.0500 a'
is '... at one of them' "$(line 2)" '0.2000 0.4000 0.1000 b'
is '... on the way to all' "$(line 3)" '0.7000 0.9000 0.0000 c'
is '... with all' "$(line 4)" '1.0000 1.0000 0.0000 d'
is '... and on the way from nothing' "$(line 5)" '0.1000 0.1000 0.1500 e'
# the line from 0 through 0.5 at 0.2 comes to 0.75 at 0.3, that through 0.8 at 0.4 to 0.767
ok 'above the line, but below what the oracle may have there, is right' against 'a 0 0.3 0 0.75'
above() { ! against 'a 0 0.3 0 0.76' 'b 0 0.3 0 0.5'; }
ok 'above that is not' above
is '... which is said' "$(line 1)" '0.3000 0.7600 -0.1100 aABOVE'
is '... and counted' "$(tail -1 points)" '2 points, 1 above the oracle'
others() { against 'a 1 0.3 0 1' 'b 0 0.3 0 1 s u e 64' 'c 0 0.3 0 1 s u gather' \
	'd 0 0.3 0 1 s u columns'; }
ok 'other layers, other blocks and single tokens are not compared' others
is '... not at all' "$(tail -1 points)" '0 points, 0 above the oracle'

# ---- the curves of the README ----

drawn_methods() { # drawn_methods CSV: the program has them; else measure and draw anew
	before=$(sed '1!d; s/method,.*//; s/[^,]//g' "$1" | tr -d '\n' | wc -c)
	sed "1d; s/^\([^,]*,\)\{$before\}//" "$1" | sed 's/^"\([^"]*\)".*/\1/; t; s/,.*//' >names
	while read -r m; do
		"$ATTNREPLAY" methods "$m" >/dev/null || return 1
	done <names
}
for doc in accuracy-density accuracy-density-32k; do
	ok "$doc: its methods are methods; else measure with contrib/curve.sh anew" \
		drawn_methods "$srcdir/doc/$doc.csv"
	is "$doc: what is drawn is what the table has" "$(points "$srcdir/doc/$doc.svg")" \
		"$(sed 1d "$srcdir/doc/$doc.csv" | awk 'END { print 2 * NR }')"
done

# ---- from a capture ----

curve() { sh "$srcdir/contrib/curve.sh" "$@"; }
usage() { curve out 2>err; [ $? = 2 ] && grep -q '^usage: ' err; }
ok 'without options it says how it is used' usage
by() { echo "select=$1,density=$2/union=none/exec=blocksparse"; }
METHODS=$(by oracle 0.3),$(by density 0.3),$(by oracle 0.6),compact-fp
export METHODS
curve out --capture "$arc" --context 768 --chunk 256 || exit 99
is 'every method has its line' "$(wc -l <out/curve.csv | tr -d ' ')" 5
is '... and its points' "$(points out/curve.svg) $(wc -l <out/points.csv | tr -d ' ')" '8 5'
is '... and is below the oracle' "$(tail -1 out/curve.bound)" '2 points, 0 above the oracle'
ok '... and its text' grep -q 'context 768, chunk 256: compact-fp$' out/curve.txt
# the executed density and the recall of each line
figures() { sed 's/"[^"]*\(""[^"]*\)*"/x/g' out/curve.csv |
	awk -F, -v n="$1" 'NR == n { print $11, $16 }'; }
better() { echo "$(figures 2) $(figures 3) $(figures 4)" |
	awk '{ print; exit !($2 > $4 && $6 > $2 && $5 > $1) }'; }
ok 'the oracle beats chance, and with more it is better' better
cat >fake <<'F'
#!/bin/sh
# Write the methods, one on each line.  A comma precedes a further parameter or a method.
[ "$1" != methods ] || exec "$real" "$@"
[ "$1" = select ] || exit 0
while [ "$1" != --method ]; do [ "$1" != --csv ] || csv=$2; shift; done
printf %s "$2" | awk -v RS=, '{ printf "%s%s", NR == 1 ? "" : /:|^select=/ || !/=/ ? "\n" : ",", $0 }
	END { print "" }' >list
cp made.csv "$csv"
F
chmod +x fake
real=$ATTNREPLAY
export real
sweep() {
	unset METHODS
	GATE=mean ATTNREPLAY=$tmp/fake curve all --capture x
}
ok 'the default sweeps over parameters' sweep
cp list before
is '... each value once' "$(sort list | uniq -d)" ''
defaults() {
	[ "$(wc -l <list)" -gt 60 ] || return 1
	while read -r m; do
		"$ATTNREPLAY" methods "$m" || return 1
	done <list
}
ok '... of methods that there are' defaults
selector_of() { "$ATTNREPLAY" methods "$1" | grep -o '"select":"[^"]*"' | cut -d'"' -f4; }
while read -r m; do selector_of "$m"; done <list | sort -u >drawn
for s in $("$ATTNREPLAY" methods | sed -n '/^selectors,/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vx none); do
	ok "... and of selector $s, which needs a named method or a sweep in curve.sh" grep -qx "$s" drawn
done
# Without its sweep a selector is drawn by the first method that has it.
mkdir -p copy/contrib
sed '/sweep bfla:/d' "$srcdir/contrib/curve.sh" >copy/contrib/curve.sh
for f in common.sh curve_bound.py program; do cp "$srcdir/contrib/$f" copy/contrib; done
GATE=mean ATTNREPLAY=$tmp/fake sh copy/contrib/curve.sh all --capture x
is 'a selector without a sweep has a point' "$(grep bfla list)" bfla
is '... and others have no more than before' "$(wc -l <list | tr -d ' ')" \
	$(($(wc -l <before) - 5))
PYTHON=no-such-python sh "$srcdir/contrib/curve.sh" early --capture "$arc" >early.out 2>&1
is 'without Python nothing begins' "$?:$(cat early.out)" \
	"1:curve.sh: no program 'no-such-python', which compares with the bound; name one as PYTHON"
ok '... and nothing is left' test ! -e early
finish
