#!/usr/bin/env bash
# Fetches the public data sets that Penstock's tutorials train on, each file checked against its SHA-256. What is there
# already is left alone; a download that fails leaves nothing behind.
#
#   scripts/fetch_data.sh SET...    mnist, cifar10 or text
#
# They go below $PENSTOCK_DATA where that is set, else below data/full/: mnist/, cifar10/, text/. MNIST, the text and a
# part of CIFAR-10 come with Penstock in data/; train on the whole of CIFAR-10 with --data data/full.
# PENSTOCK_MIRROR names another place that has the same files side by side, as a URL (file:///... too).
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
data=${PENSTOCK_DATA:-$repository/data/full}

say() { echo "fetch_data: $*"; }
fail() { echo "fetch_data: $*" >&2; exit 1; }

work=""
trap '[[ -z $work ]] || rm -rf "$work"' EXIT

is_file() {  # PATH SHA256
  [[ -f $1 ]] && echo "$2  $1" | sha256sum --check --status 2> /dev/null
}

# download URL PATH
download() {
  if command -v curl > /dev/null; then
    curl --fail --silent --show-error --location --retry 2 --output "$2" "$1"
  elif command -v wget > /dev/null; then
    wget --quiet --tries 3 --output-document "$2" "$1"
  else
    fail "neither curl nor wget is here: install one, or copy the file from $1 to $data yourself"
  fi
}

# fetch URL SHA256 FOLDER [NAME]: into FOLDER, under its own name or another one, unless the right file is there.
fetch() {
  local url=$1 sum=$2 folder=$3 name=${4:-${1##*/}} got
  if is_file "$folder/$name" "$sum"; then
    say "$folder/$name is there"
    return
  fi
  if [[ -n ${PENSTOCK_MIRROR:-} ]]; then url=$PENSTOCK_MIRROR/${url##*/}; fi
  mkdir -p "$folder"
  work=$(mktemp -d "$folder/.fetch.XXXXXX")
  say "fetching $url"
  download "$url" "$work/$name" || fail "cannot fetch $url: is there a network? Or copy the file to $folder/$name"
  got=$(sha256sum "$work/$name" | cut -d' ' -f1)
  [[ $got == "$sum" ]] || fail "$url has SHA-256 $got, not $sum: it is another file"
  mv "$work/$name" "$folder/$name"
  rm -rf "$work"
}

fetch_mnist() {
  local from=https://ossci-datasets.s3.amazonaws.com/mnist to=$data/mnist
  fetch $from/train-images-idx3-ubyte.gz 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 "$to"
  fetch $from/train-labels-idx1-ubyte.gz 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c "$to"
  fetch $from/t10k-images-idx3-ubyte.gz 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 "$to"
  fetch $from/t10k-labels-idx1-ubyte.gz f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 "$to"
}

# The archive's records, 6 files. A part of the set, laid there by hand, is left alone: both would be read.
fetch_cifar10() {
  local to=$data/cifar10 archive=cifar-10-binary.tar.gz
  if compgen -G "$to/data_batch*.bin" > /dev/null; then
    say "$to is there"
    return
  fi
  fetch https://www.cs.toronto.edu/~kriz/$archive \
    c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd "$to"
  work=$(mktemp -d "$to/.fetch.XXXXXX")
  tar --extract --gzip --file "$to/$archive" --directory "$work" --strip-components 1
  mv "$work"/*.bin "$work"/batches.meta.txt "$to"
  rm -rf "$work" "${to:?}/$archive"
}

fetch_text() {
  fetch https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt \
    86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed "$data/text" tinyshakespeare.txt
}

[[ $# -gt 0 ]] || { echo "usage: scripts/fetch_data.sh SET...    mnist, cifar10 or text" >&2; exit 2; }
for set in "$@"; do
  case $set in
    mnist | cifar10 | text) ;;
    *) echo "fetch_data: there is no set '$set': mnist, cifar10, text" >&2; exit 2 ;;
  esac
done
for set in "$@"; do "fetch_$set"; done
