"""python/examples/train.py, as the README says, learns. Arguments: the command that starts it."""
import re
import subprocess
import sys

ran = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=150)
losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+) on 2 ranks", ran.stdout)]
print(ran.stdout, ran.stderr)
assert ran.returncode == 0, f"it ended with {ran.returncode}"
assert len(losses) == 6 and losses[0] > 4 and losses[-1] < 2.6, losses
