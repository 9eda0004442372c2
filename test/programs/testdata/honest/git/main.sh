set -euo pipefail
git init -q . && git config user.name me && git config user.email me@example.org
for n in 1 2 3; do echo "$n" >>file && git add file && GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' git commit -qm "change $n"; done
git log --format='%h %s'
git checkout -qb other HEAD~1 && echo x >other && git add other && git commit -qm other && git merge -q -m merge master && git ls-files
git clone -q . copy && git -C copy fsck --no-progress && git -C copy log --format=%s | wc -l
git gc -q && git bundle create -q all.bundle --all && git bundle verify -q all.bundle && echo verified
