#!/bin/sh
# Recorded flows that others have labelled: fetches the test captures of Debian's `ndpi` source package,
# which are not ours to keep, and says which directions `weir replay` finds to be real-time in each.
# Beside them stand the opinions of tshark and ndpiReader, where these are installed.
#
# usage: corpus.sh WEIR [FOLDER]
set -eu
weir=$1
folder=${2:-target/corpus}
mkdir -p "$folder/apt/lists/partial"
folder=$(cd "$folder" && pwd)

if [ ! -d "$folder/pcap" ]; then
    # Sources from lists of our own: those of the machine stay as they are.
    echo 'deb-src http://deb.debian.org/debian bookworm main' > "$folder/apt/sources.list"
    lists="-o Dir::Etc::SourceList=$folder/apt/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$folder/apt/lists"
    # Only the archive of the authors is needed: that the mirror lacks Debian's own part does not matter.
    (cd "$folder" && apt-get $lists update && { apt-get $lists source --download-only ndpi || true; })
    archive=$(ls "$folder"/ndpi_*.orig.tar.* 2>/dev/null | head -1)
    [ -n "$archive" ] || { echo "corpus: ndpi's archive could not be fetched: see what apt-get said above" >&2; exit 1; }
    mkdir -p "$folder/unpacked"
    tar xf "$archive" -C "$folder/unpacked" --wildcards '*/tests/pcap/*' '*/tests/result/*'
    mv "$folder"/unpacked/*/tests/pcap "$folder/pcap"
    mv "$folder"/unpacked/*/tests/result "$folder/labels"
fi

conf="$folder/corpus.altq"
printf 'interface lan0 bandwidth 100G\nrecognise lan0 rtp 4/2s offsets auto stun dtls\n' > "$conf"
exec python3 "$(dirname "$0")/corpus.py" "$weir" "$conf" "$folder"
