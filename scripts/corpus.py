#!/usr/bin/env python3
"""What `weir replay` finds in each capture of the corpus, beside tshark and ndpiReader.

A direction that is found counts as right if the capture's own label or tshark's heuristics say that it
is media; else it is listed as false. Exit 1 if any is false, or fewer than 24 directions of RTP are found.
"""

import json
import pathlib
import shutil
import subprocess
import sys

LEAST = 24
# What nDPI calls flows that carry media. "Skype_TeamsCall" and "Zoom" are calls; plain "Skype" may be none.
MEDIA = ("RTP", "SRTP", "Call", "Zoom", "Teams", "WhatsAppCall", "Signal", "Discord", "Line", "STUN", "KakaoTalk_Voice", "Skype")


def replay(weir, conf, capture):
    run = subprocess.run([weir, "replay", "-j", conf, "lan0", capture], capture_output=True, text=True)
    if run.returncode != 0:
        return None, run.stderr.strip().splitlines()[-1:] or ["?"]
    return json.loads(run.stdout)["recognised"], None


def tshark(capture):
    """Directions with at least four packets of one SSRC: address, port, address, port."""
    if not shutil.which("tshark"):
        return None
    command = ["tshark", "-n", "-r", capture, "--enable-heuristic", "rtp_udp", "-q", "-z", "rtp,streams"]
    run = subprocess.run(command, capture_output=True, text=True)
    found = set()
    for line in run.stdout.splitlines():
        words = line.split()
        # start, end, address, port, address, port, SSRC, payload (one word or more), packets, ...
        try:
            at = next(n for n, word in enumerate(words) if word.startswith("0x"))
            packets = next(int(word) for word in words[at + 2:] if word.isdigit())
        except (StopIteration, ValueError):
            continue
        if packets >= 4:
            found.add((words[at - 4], words[at - 3], words[at - 2], words[at - 1]))
    return found


def ndpi(capture):
    """Label of each flow, by its ends in both orders."""
    if not shutil.which("ndpiReader"):
        return {}
    run = subprocess.run(["ndpiReader", "-q", "-v", "2", "-i", capture], capture_output=True, text=True, errors="replace")
    labels = {}
    for line in run.stdout.splitlines():
        words = line.split()
        if "UDP" not in words or "[proto:" not in line:
            continue
        ends = words[words.index("UDP") + 1:]
        label = line.split("[proto:", 1)[1].split("]")[0].split("/")[-1]
        try:
            a, b = ends[0], ends[2]
        except IndexError:
            continue
        labels[(a, b)] = labels[(b, a)] = label
    return labels


def ends(flow):
    """`udp 10.0.0.1:5 > 10.0.0.2:6 ...` as nDPI and tshark write its ends."""
    words = flow.split()
    return words[1], words[3]


def parts(end):
    address, port = end.rsplit(":", 1)
    return address.strip("[]"), port


def main():
    weir, conf, folder = sys.argv[1:4]
    captures = sorted(p for p in (pathlib.Path(folder) / "pcap").iterdir() if p.suffix in (".pcap", ".pcapng", ".cap"))
    directions = quic = 0
    rows, unread, missed = [], [], []
    for capture in captures:
        found, why = replay(weir, conf, str(capture))
        if found is None:
            unread.append((capture.name, why[0]))
            continue
        directions += found["directions"]
        quic += found["quic"]
        streams = tshark(str(capture))
        labels = ndpi(str(capture)) if found["flows"] else {}
        ours = set()
        for flow in found["flows"]:
            a, b = ends(flow["flow"])
            key = (*parts(a), *parts(b))
            ours.add(key)
            label = labels.get((a, b), "-")
            theirs = "yes" if streams is not None and key in streams else "no"
            right = theirs == "yes" or any(word in label for word in MEDIA)
            rows.append((capture.name, flow, label, theirs, right))
        if streams:
            missed += [(capture.name, stream) for stream in streams - ours]
    print("| capture | direction | kind | at packet | of | tshark | ndpiReader |\n|---|---|---|---|---|---|---|")
    for name, flow, label, theirs, right in rows:
        direction = " > ".join(ends(flow["flow"]))
        mark = "" if right else " **?**"
        print(f"| {name} | {direction} | {flow['kind']}{mark} | {flow['packet']} | {flow['packets']} | {theirs} | {label} |")
    plain = [row for row in rows if row[1]["kind"] in ("rtp", "rtp turn")]
    false = [row for row in rows if not row[4]]
    print(f"\n{len(captures)} captures, {directions} directions of UDP, {quic} of QUIC.")
    print(f"{len(rows)} found, {len(plain)} of them as plain RTP; neither tshark nor nDPI calls {len(false)} of them media.")
    for name, stream in missed:
        print(f"not found, though tshark has four packets of an SSRC: {name} {stream}")
    for name, why in unread:
        print(f"not read: {name}: {why}")
    sys.exit(1 if false or len(plain) < LEAST else 0)


main()
