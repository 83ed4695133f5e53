"""What `rematch bench` measures: ours (ours.py), its peers (peer.py), and how (measure.py)."""
