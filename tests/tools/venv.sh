#!/usr/bin/env bash
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Usage: venv.sh current|next|docs
#   current  .venv       Python 3.11 if there is one (ansible-core 2.19), else the next newer one
#   next     .venv-next  Python 3.12 or newer (ansible-core 2.21); exits 77, "skipped", when that is no second version
#   docs     .venv-docs  the Python of .venv, with what builds the documentation
# Does nothing when the environment already fits the requirement files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly SKIPPED=77
requirements=(requirements.txt requirements-test.txt)

# Print the path of the first interpreter among the versions given that really starts: a version manager may put
# commands on the PATH that only say "command not found".
find_python() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
      if [[ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$version" ]]; then
        echo "$candidate"
        return
      fi
    done
  done
  return 1
}

# Debian keeps what `python -m venv` needs in a package of its own.
need_ensurepip() {
  local python=$1 package
  "$python" -c 'import ensurepip' 2>/dev/null && return
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing $package: $python cannot make virtual environments without it."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
  else
    echo "$python cannot make virtual environments: install $package (Debian, Ubuntu: sudo apt-get install $package)." >&2
    return 1
  fi
}

case "${1:-}" in
  current | docs)
    directory=.venv
    if [[ $1 == docs ]]; then
      directory=.venv-docs
      requirements=(requirements-docs.txt)
    fi
    if ! python=$(find_python 3.11 3.12 3.13 3.14); then
      echo "No Python from 3.11 to 3.14 found: ansible-core 2.19 needs 3.11 or newer." >&2
      exit 1
    fi
    ;;
  next)
    directory=.venv-next
    if ! find_python 3.11 >/dev/null; then
      echo "no Python 3.11 beside the newer one: everything ran on ansible-core 2.21, nothing on 2.19"
      exit $SKIPPED
    fi
    if ! python=$(find_python 3.13 3.12 3.14); then
      echo "no Python 3.12 or newer found: nothing ran on ansible-core 2.21"
      exit $SKIPPED
    fi
    ;;
  *)
    sed -n 's/^# \{0,1\}//; 5,9p' "$0" >&2
    exit 2
    ;;
esac

mkdir -p .cache
exec 9>".cache/${directory#.}.lock"
flock 9

stamp=$directory/.requirements
wanted=$(cat "${requirements[@]}" && "$python" --version)
if [[ -x $directory/bin/python && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then
  exit 0
fi
need_ensurepip "$python"
echo "Making $directory with $("$python" --version) and what ${requirements[*]} name; this takes a few minutes once."
"$python" -m venv --clear "$directory"
# Python compiles what it imports; all the rest, most of it, needs no bytecode.
"$directory/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check -r "${requirements[-1]}"
echo "$wanted" >"$stamp"
