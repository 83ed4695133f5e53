"""Videos of evaluation episodes, MP4 and GIF with an overlay (rematch/training/components/episode_video.py,
rematch/reporting/)."""

from rematch.reporting.episode_film import composed, films
from rematch.reporting.match_film import gif
from rematch.reporting.mp4 import encoder, mp4
from rematch.training.components.episode_video import EpisodeRecorder

__all__ = ["EpisodeRecorder", "composed", "encoder", "films", "gif", "mp4"]
