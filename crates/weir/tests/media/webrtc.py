"""A WebRTC peer (aiortc) in a network namespace: webrtc.py offer|answer voice|data FOLDER SECONDS.

Session descriptions pass through files in FOLDER. With `voice` both send a tone by Opus; with `data` they
exchange messages over a data channel alone.
"""
import asyncio
import json
import os
import sys

from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack


def write(path, description):
    with open(path + ".new", "w") as file:
        json.dump({"sdp": description.sdp, "type": description.type}, file)
    os.rename(path + ".new", path)


async def read(path):
    while not os.path.exists(path):
        await asyncio.sleep(0.05)
    with open(path) as file:
        return RTCSessionDescription(**json.load(file))


async def main(side, what, folder, seconds):
    offer, answer = (os.path.join(folder, f"{what}-{name}.json") for name in ("offer", "answer"))
    peer = RTCPeerConnection()

    async def chatter(channel):
        while channel.readyState == "open":
            channel.send("x" * 100)
            await asyncio.sleep(0.05)

    if side == "answer":
        @peer.on("datachannel")
        def on_datachannel(channel):
            asyncio.ensure_future(chatter(channel))
    elif what == "data":
        channel = peer.createDataChannel("chat")
        channel.on("open", lambda: asyncio.ensure_future(chatter(channel)))
    if what == "voice":
        peer.addTrack(AudioStreamTrack())
    if side == "offer":
        await peer.setLocalDescription(await peer.createOffer())
        write(offer, peer.localDescription)
        await peer.setRemoteDescription(await read(answer))
    else:
        await peer.setRemoteDescription(await read(offer))
        await peer.setLocalDescription(await peer.createAnswer())
        write(answer, peer.localDescription)
    await asyncio.sleep(seconds)
    await peer.close()


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
