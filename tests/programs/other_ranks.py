"""Take some steps of an epoch, from the state that another number of processes saved; write ids and the next state.

Usage: other_ranks.py FOLDER STEPS (0: all that are left)
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

import torch.distributed as dist

import dgl_tuplepack as tp
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.sampling.test_other_ranks import SIZES, Ids


def main(folder: Path, steps: int) -> None:
    dist.init_process_group("gloo")
    loader = PackedLoader(Ids(), tp.StaticBatchSampler(tp.GraphSizes(SIZES), 4, seed=3))
    state = folder / "state.json"
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    ids = [i for batch in islice(loader, steps or None) for i in batch]
    dist.barrier()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    (folder / f"{ranks} ranks, {steps} steps, rank {rank}.json").write_text(json.dumps(ids))
    if rank == 0:
        state.write_text(json.dumps(loader.state_dict()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
