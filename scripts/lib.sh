# shellcheck shell=bash
# Shared by the scripts beside this file; sourced, never run.
# Sections with timings, and questions about the machine.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# Everything that ships is built without cgo. The race detector is the one
# exception; it asks for cgo by itself.
export CGO_ENABLED=0

# Everything is compiled as what ships is, so that nothing is compiled twice.
export GOFLAGS=${GOFLAGS:--trimpath}

# say prints one line about what the script does.
say() { printf '%s\n' "$*"; }

# die prints why the script stops, and stops it.
die() {
	printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# section NAME COMMAND... runs one step and prints its name, outcome and
# duration. A failing step ends the script.
section() {
	local name=$1 start=$SECONDS
	shift
	printf '== %s\n' "$name"
	if "$@"; then
		printf '   ok, %d s\n' $((SECONDS - start))
	else
		printf '   FAILED after %d s: %s\n' $((SECONDS - start)) "$name" >&2
		return 1
	fi
}

# step is section for scripts that go on after a failure and then call verdict.
failed=()
step() { section "$@" || failed+=("$1"); }

# verdict NAME says how it went, and ends the script if a step failed.
verdict() {
	if [ ${#failed[@]} -gt 0 ]; then
		printf '\n%s: %d failed:\n' "$1" ${#failed[@]} >&2
		printf '  %s\n' "${failed[@]}" >&2
		exit 1
	fi
	say "$1: passed in $SECONDS s"
}

# have says whether a command exists.
have() { command -v "$1" >/dev/null 2>&1; }

# missing_packages PACKAGE... prints those that dpkg does not have.
missing_packages() {
	local installed
	installed=$(dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' | sed -n 's/^installed //p' | sed 's/:.*//')
	printf '%s\n' "$@" | grep -vxFf <(printf '%s\n' "$installed") || true
}

# retry TIMES COMMAND... repeats a command that uses the network.
retry() {
	local left=$1
	shift
	until "$@"; do
		left=$((left - 1))
		[ "$left" -gt 0 ] || return 1
		say "   failed; trying again in 5 s"
		sleep 5
	done
}

# apt_install PACKAGE... installs Debian packages as root, quietly.
apt_install() {
	local log
	log=$(mktemp)
	if ! { retry 3 apt-get update -q && retry 3 apt_get_install "$@"; } >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		rm -f "$log"
		return 1
	fi
	rm -f "$log"
}

apt_get_install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}
