"""Films of evaluation episodes, MP4 and GIF with an overlay (rematch/engine/take.py, rematch/show/)."""

from rematch.engine.take import Camera
from rematch.show.film import gif
from rematch.show.mp4 import encoder, mp4
from rematch.show.rollout import composed, films

__all__ = ["Camera", "composed", "encoder", "films", "gif", "mp4"]
