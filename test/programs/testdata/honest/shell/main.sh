# What scripts do: pipelines, substitutions, traps, jobs, here documents, many
# processes at once, a program that make builds.
set -euo pipefail
trap 'echo leaving' EXIT
seq 1 100 | xargs -P 4 -n 5 sh -c 'echo $(( $1 + $2 + $3 + $4 + $5 ))' _ | sort -n | paste -sd+ | bc
diff <(printf 'a\nb\n') <(printf 'a\nc\n') || true
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo "$line"
exec {COPROC[1]}>&-
jobs=() failed=0
for n in 1 2 3; do (exit "$n") & jobs+=($!); done
for job in "${jobs[@]}"; do wait "$job" || failed=$((failed + 1)); done
echo "$failed failed"
printf 'all: a.txt b.txt\n\n%%.txt:\n\t@echo $* >$@; cat $@\n' >Makefile
make -s -j2 | sort
tar -cJf all.tar.xz a.txt b.txt && tar -tf all.tar.xz
zcmp() { gzip -c "$1" | zcat | cmp - "$1" && echo same; }
zcmp Makefile
echo to stderr >/dev/stderr 2>err.txt; echo to stdout >/dev/stdout
[ "$(nproc)" -ge 1 ] && awk '/^MemTotal/ {exit !($2 > 0)}' /proc/meminfo && echo 'a machine'
