"""
Train with two processes, and resume
====================================

Two processes train on one dataset. Training is interrupted in the middle of an epoch, and a second run continues where
the first one stopped: in each epoch, no graph is lost and none comes twice. This page runs real processes with
``torchrun``, and looks at the batches that each of them gets.
"""

# %%
# A training script
# -----------------
#
# The script is started with ``torchrun --nproc-per-node=2 train.py FOLDER STEPS``. To show an interruption, it ends
# after that many steps; with -1 it trains to the end. The loader reads its rank from ``torch.distributed``. Every rank
# gets the same number of batches, so no process waits for a rank that has none left.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import dgl_tuplepack as tp

SCRIPT = """
import json, sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch_geometric.nn import GCNConv, global_mean_pool
import dgl_tuplepack as tp

folder, stop_after = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()

loader = tp.packed_loader(folder / "store", batch_size=16, seed=0, with_ids=True)
torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 1)

    def forward(self, data):
        return global_mean_pool(self.conv(data.x, data.edge_index), data.batch, data.num_graphs)


plain = Model()
# To compile it: DistributedDataParallel(tp.compile(plain, loader)).
model = torch.nn.parallel.DistributedDataParallel(plain)
optimiser = torch.optim.Adam(model.parameters())
loss_fn = torch.nn.MSELoss()

checkpoint = folder / "checkpoint.pt"
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    plain.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    loader.load_state_dict(saved["loader"])

seen, steps = [], 0
for epoch in range(loader.sampler.epoch, 2):
    loader.set_epoch(epoch)
    for data in loader:
        loss = loss_fn(model(data), data.y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append([epoch, data.graph_ids.tolist(), data.num_nodes])
        steps += 1
        if steps == stop_after:
            break
    if steps == stop_after:
        break

if rank == 0:
    named = {"model": plain, "optimiser": optimiser, "loader": loader}
    torch.save({name: each.state_dict() for name, each in named.items()}, checkpoint)
(folder / f"seen-{stop_after}-{rank}.json").write_text(json.dumps(seen))
dist.destroy_process_group()
"""

# %%
# Data on disk, for both processes
# --------------------------------

from torch_geometric.data import Data

num_graphs = 600
torch.manual_seed(0)
sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    edge_index = torch.randint(nodes, (2, edges))
    dataset.append(Data(x=torch.randn(nodes, 4), edge_index=edge_index, y=torch.randn(1, 1)))

folder = Path(tempfile.mkdtemp())
tp.GraphStore.write(folder / "store", dataset)
(folder / "train.py").write_text(SCRIPT)

# %%
# Run it, and interrupt it after five steps
# -----------------------------------------
#
# The second run finds the checkpoint of the first. ``loader.load_state_dict`` restores the epoch, and how many of its
# batches the loop had received. The state of rank 0 is enough, because it is the same on all ranks.


def train(stop_after):
    """Run the script with two processes; return the batches that each of them got."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command += [str(folder / "train.py"), str(folder), str(stop_after)]
    subprocess.run(command, check=True, capture_output=True)
    files = [folder / f"seen-{stop_after}-{rank}.json" for rank in range(2)]
    return [json.loads(file.read_text()) for file in files]


before = train(stop_after=5)
after = train(stop_after=-1)
print([len(rank) for rank in before], "steps, then", [len(rank) for rank in after])

# %%
# Every graph, exactly once per epoch
# -----------------------------------

for epoch in range(2):
    batches = [batch for rank in (*before, *after) for batch in rank]
    ids = [i for when, graphs, _ in batches for i in graphs if when == epoch]
    assert sorted(ids) == list(range(num_graphs))
    print(f"epoch {epoch}: {len(ids)} graphs, each once, over 2 processes and 2 runs")

# %%
# Equal work
# ----------
#
# In each step, both processes get batches of nearly equal size, so neither waits long for the other.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for rank in range(2):
    nodes = [number for _, _, number in (*before[rank], *after[rank])]
    axes.plot(nodes, marker="o", markersize=3, label=f"rank {rank}")
axes.axvline(4.5, color="grey", linestyle="--", label="interrupted")
axes.set(xlabel="step", ylabel="nodes of graphs in the batch", ylim=(0, None))
axes.legend(loc="lower left")

# %%
# Notes
# -----
#
# - Every process must have the same seed, data and settings. The ranks compare them once, when they make the loader.
# - PyTorch Lightning saves and restores the state of the loader itself: :doc:`/howto/lightning`.
