#!/bin/sh
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
plot() { "$python" "$srcdir/contrib/curve_plot.py" "$@"; }
xml()  { "$python" -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$1"; }
points() { grep -c '<circle' "$1"; }

# ---- the drawing, of made-up rows ----

row() { # row METHOD LAYER DENSITY REL_L2 RECALL
	echo "\"a\",$2,512,256,cpu,\"$1\",\"{\"\"select\"\":\"\"s\"\",\"\"union\"\":\"\"u\"\",\"\"exec\"\":\"\"e\"\"}\",,,,$3,,$4,,,$5,"
}
{
	echo capture,layer,context,chunk,backend,method,parameters,density_selected,density_q_block,density_group,density_executed,jaccard,rel_l2_mean,rel_l2_max,cosine_min,recall_mean,recall_min
	row a:x=1 0 0.4 0.1 0.5
	row a:x=1 1 0.6 0.3 0.7
	row a:x=2 0 1 0 1
	row 'select=s,y=1/union=u/exec=e' 0 0.2 0.5 0.25
} >made.csv
plot made.csv made.svg || exit 99
ok 'the drawing is XML' xml made.svg
is 'layers are averaged to a point a method, drawn in both panels' "$(points made.svg)" 6
is 'parameters of a method are joined' "$(grep -c '<polyline' made.svg)" 4
ok 'a composition is named by its parts' grep -q '>s/u/e<' made.svg
# half of the density's axis from 70, 460 wide; recall 0.6 of 320 from below 40
ok 'points lie at the means' grep -q 'cx="870.0" cy="168.0"' made.svg
head -1 made.csv >none.csv
no_rows() { plot none.csv none.svg 2>err; [ $? = 1 ] && grep -q 'none.csv: no rows' err && [ ! -e none.svg ]; }
ok 'without rows there is nothing to draw' no_rows

# ---- from a capture ----

curve() { sh "$srcdir/contrib/curve.sh" "$@"; }
usage() { curve out 2>err; [ $? = 2 ] && grep -q '^usage: ' err; }
ok 'without options it says how it is used' usage
by() { echo "select=$1,density=$2/union=none/exec=blocksparse"; }
METHODS=$(by oracle 0.3),$(by density 0.3),$(by oracle 0.6),compact-fp
export METHODS
curve out --capture "$arc" --context 768 --chunk 256 || exit 99
is 'every method has its line' "$(wc -l <out/curve.csv | tr -d ' ')" 5
is '... and its points' "$(points out/curve.svg)" 8
ok '... and its text' grep -q 'context 768, chunk 256: compact-fp$' out/curve.txt
# the density that is executed and recall, by line
figures() { sed 's/"[^"]*\(""[^"]*\)*"/x/g' out/curve.csv | awk -F, -v n="$1" 'NR == n { print $11, $16 }'; }
better() { echo "$(figures 2) $(figures 3) $(figures 4)" | awk '{ print; exit !($2 > $4 && $6 > $2 && $5 > $1) }'; }
ok 'the oracle beats chance, and with more it is better' better
cat >fake <<'F'
#!/bin/sh
# Notes the methods, one a line: a comma stands before a further parameter, or before a method.
while [ "$1" != --method ]; do [ "$1" != --csv ] || csv=$2; shift; done
printf %s "$2" | awk -v RS=, '{ printf "%s%s", NR == 1 ? "" : /:|^select=/ ? "\n" : ",", $0 }
	END { print "" }' >list
cp made.csv "$csv"
F
chmod +x fake
sweep() {
	unset METHODS
	ATTNREPLAY=$tmp/fake curve all --capture x
}
ok 'the default sweeps over parameters' sweep
is '... each value once' "$(sort list | uniq -d)" ''
defaults() {
	[ "$(wc -l <list)" -gt 30 ] || return 1
	while read -r m; do
		"$ATTNREPLAY" methods "$m" || return 1
	done <list
}
ok '... of methods that there are' defaults
finish
