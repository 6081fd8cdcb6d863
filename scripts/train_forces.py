"""Train a small PaiNN on energies and forces of structures, padded and compiled.

    python scripts/train_forces.py                                        # structures that the script makes
    python scripts/train_forces.py --structures data.extxyz --cutoff 5    # a file that ASE reads (extra: ase)

Edges are found once and written to a store, with the periodic image of each; then only the loader and `tp.compile` come
from dgl_tuplepack. docs/howto/positions.md explains the steps. Energies and lengths have the units of the file: eV and
angstrom for ASE.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import InputError, TuplepackError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# Rows of the attributes of a graph. Some sets of structures do not show them, such as those of one trajectory.
LEVELS = {"z": "node", "pos": "node", "force": "node", "shift": "edge", "cell": "graph", "energy": "graph"}


@app.command()
def train(
    structures: Annotated[
        Path | None, typer.Option(help="File of structures that ASE reads, such as .extxyz. None: made ones.")
    ] = None,
    energy_key: Annotated[str, typer.Option(help="Name of the energies in the file.")] = "energy",
    forces_key: Annotated[str, typer.Option(help="Name of the forces in the file.")] = "forces",
    cutoff: Annotated[float, typer.Option(min=0.1, help="Length of the longest edges.")] = 4.0,
    number: Annotated[int, typer.Option(min=10, help="Number of structures to make without a file.")] = 1000,
    valid: Annotated[float, typer.Option(min=0.001, max=0.9, help="Fraction of the structures to evaluate on.")] = 0.1,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of structures per batch.")] = 16,
    width: Annotated[int, typer.Option(min=1, help="Width of the network.")] = 64,
    layers: Annotated[int, typer.Option(min=1)] = 3,
    compiled: Annotated[
        bool, typer.Option("--compile/--plain", help="Pad batches inside the model and compile it, or not.")
    ] = True,
    force_weight: Annotated[float, typer.Option(min=0, help="Weight of forces in the loss.")] = 10.0,
    learning_rate: Annotated[float, typer.Option(min=0)] = 1e-3,
    device: Annotated[str, typer.Option(help="Device, such as cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train and evaluate; print the loss and the errors after each epoch."""
    console = Console()
    load("torch_geometric")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device {device} needs CUDA, which this machine or this torch lacks; leave it out.")
    torch.manual_seed(seed)
    made = structures is None
    found = made_structures(number, seed) if made else read_structures(structures, energy_key, forces_key)
    if len(found) < 2:
        raise InputError(f"{structures} has {len(found)} structures, but training needs 2 or more; give more.")
    order = torch.randperm(len(found)).tolist()
    first = max(1, round(valid * len(found)))
    with tempfile.TemporaryDirectory() as folder:
        splits = {"train": order[first:], "valid": order[:first]}
        training = [found[i] for i in splits["train"]]
        references = fitted_references(training)
        shown = progress_bar(found, desc="finding edges", unit=" structures")
        graphs = (graph_of(each, cutoff, references) for each in shown)
        store = tp.GraphStore.write(f"{folder}/store", graphs, splits=splits, levels=LEVELS, compact=True)
        if not store.sizes.totals()["edges"]:
            raise InputError(f"no two atoms are nearer than --cutoff {cutoff}; give a larger one.")
        loaders = tp.packed_loader(store, batch_size=batch_size, splits=True, seed=seed)
        for split, loader in loaders.items():
            console.print(
                f"{split}: {len(loader.dataset):,} structures in {len(loader):,} batches within {loader.shape}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
        scale = torch.cat([each.forces for each in training]).square().mean().sqrt()
        model = Potential(cutoff, width, layers, float(scale) or 1.0).to(device)
        if compiled:
            model = tp.compile(model, [*loaders.values()])
        optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for epoch in range(epochs):
            begin = time.perf_counter()
            loss = train_epoch(model, loaders["train"], optimizer, force_weight, device, epoch)
            seconds = time.perf_counter() - begin
            schedule.step()
            errors = evaluate(model, loaders["valid"], device)
            console.print(
                f"epoch {epoch}: {seconds:.1f} s, mean loss {loss:.5f}; valid, mean absolute errors: energy per atom "
                f"{errors[0]:.5f}, forces {errors[1]:.5f}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip


# Structures


@dataclass
class Structure:
    """Atoms with their energy and forces; a row of `cell` is used only if `pbc` is True for it."""

    z: Tensor
    pos: Tensor
    cell: Tensor
    pbc: Tensor
    energy: float
    forces: Tensor


def read_structures(path: Path, energy_key: str, forces_key: str) -> list[Structure]:
    """Read structures by ASE; raise InputError if the file or one of its structures cannot be used."""
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {problem}; give a file of structures, such as .extxyz.")
    ase_io = load("ase.io")
    try:
        frames = ase_io.read(path, ":")
    # ASE raises errors of many types for damaged files.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"ASE cannot read {path} ({type(error).__name__}: {reason}); give a file in one of ASE's formats."
        ) from error
    return [_structure_of(frame, f"structure {i} of {path}", energy_key, forces_key) for i, frame in enumerate(frames)]


def _structure_of(frame: Any, title: str, energy_key: str, forces_key: str) -> Structure:
    results = {} if frame.calc is None else frame.calc.results
    known = {energy_key: {**frame.info, **results}, forces_key: {**frame.arrays, **results}}
    for key, names in known.items():
        if names.get(key) is None:
            others = "".join(f", {name}" for name in sorted(names.keys() - {"numbers", "positions"}))
            but = f", but {others[2:]}" if others else ""
            raise InputError(f"{title} has no {key!r}{but}; name energies and forces by --energy-key and --forces-key.")
    try:
        energy, forces = float(known[energy_key][energy_key]), torch.tensor(known[forces_key][forces_key]).double()
    except (TypeError, ValueError) as error:
        raise InputError(f"{title} has an energy or forces that are no numbers ({error}).") from error
    found = Structure(
        torch.tensor(frame.numbers), torch.tensor(frame.positions), torch.tensor(frame.cell.array),
        torch.tensor(frame.pbc), energy, forces,
    )  # fmt: skip
    if forces.shape != found.pos.shape:
        raise InputError(f"{title} has forces of shape {list(forces.shape)} for {len(frame)} atoms.")
    numbers = torch.cat([found.pos, forces, torch.full((1, 3), energy)])
    if not numbers.isfinite().all():
        raise InputError(f"{title} has positions, forces or an energy that are not finite; leave it out.")
    if torch.linalg.matrix_rank(found.cell[found.pbc]) < found.pbc.sum():
        raise InputError(f"{title} is periodic along a vector of its cell that is 0 or in a plane with others.")
    return found


def made_structures(number: int, seed: int) -> list[Structure]:
    """Make clusters and crystals of two kinds of atoms, with energies and forces of a Morse potential."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for i in range(number):
        sides = torch.randint(1, 4, (3,), generator=generator)
        spacing = 2.2 + 0.6 * torch.rand(1, generator=generator, dtype=torch.float64)
        sites = torch.cartesian_prod(*map(torch.arange, sides.tolist())).double()
        is_crystal = i % 2 == 0
        if not is_crystal and len(sites) < 2:
            sites = torch.tensor([[0.0, 0, 0], [1, 0, 0]]).double()
        cell = torch.diag(sides.double() * spacing) if is_crystal else torch.zeros(3, 3, dtype=torch.float64)
        strain = torch.eye(3) + 0.05 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
        pos = spacing * sites + 0.1 * torch.randn(sites.shape, generator=generator, dtype=torch.float64)
        z = torch.randint(1, 3, (len(pos),), generator=generator)
        one = Structure(z, pos @ strain, cell @ strain, torch.full((3,), is_crystal), 0.0, pos)
        one.energy, one.forces = morse(one)
        found.append(one)
    return found


def morse(structure: Structure, cutoff: float = 4.0) -> tuple[float, Tensor]:
    """Return the energy and the forces of a Morse potential that ends smoothly at the cutoff."""
    (src, dst), shift = edges_within(structure.pos, structure.cell, structure.pbc, cutoff)
    pos = structure.pos.clone().requires_grad_()
    lengths = (pos[dst] - pos[src] + shift @ structure.cell).norm(dim=1)
    well = 2.0 + 0.25 * (structure.z[src] + structure.z[dst]) - 0.5
    decay = (-1.5 * (lengths - well)).exp()
    # Each pair has two edges.
    energy = 0.5 * ((decay * decay - 2 * decay) * (1 - (lengths / cutoff) ** 2) ** 3).sum()
    (gradient,) = torch.autograd.grad(energy, pos)
    return energy.item(), -gradient


# Edges


def edges_within(pos: Tensor, cell: Tensor, pbc: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    """Return edges, ``[2, E]``, and the cell of each destination, ``[E, 3]``, relative to that of the source.

    The vector ``pos[dst] - pos[src] + shift @ cell`` of each edge is shorter than the cutoff. Each image counts.
    """
    periodic = cell[pbc]
    inverse = torch.linalg.pinv(periodic)
    # The cell that each atom is in. Atoms outside of the first one are moved into it.
    cells = (pos @ inverse).floor()
    inside = pos - cells @ periodic
    # The distance between opposite faces of the cell is 1 / norm.
    reach = (cutoff * inverse.norm(dim=0)).ceil().int().tolist()
    ends, shifts = [], []
    for numbers in itertools.product(*(range(-n, n + 1) for n in reach)):
        image = torch.tensor(numbers, dtype=pos.dtype)
        near = (inside + image @ periodic - inside[:, None]).square().sum(2) < cutoff**2
        if not any(numbers):
            near.fill_diagonal_(False)
        src, dst = near.nonzero().T
        shift = pos.new_zeros(len(src), 3)
        shift[:, pbc] = image + cells[src] - cells[dst]
        ends.append(torch.stack([src, dst]))
        shifts.append(shift)
    return torch.cat(ends, 1), torch.cat(shifts)


def fitted_references(structures: Sequence[Structure]) -> Tensor:
    """Return an energy for each kind of atom, whose sums are nearest to the energies of the structures."""
    kinds = torch.stack([torch.bincount(each.z, minlength=119) for each in structures]).double()
    # The pseudo-inverse also handles kinds that are in no structure, or always together.
    return torch.linalg.pinv(kinds) @ torch.tensor([each.energy for each in structures], dtype=torch.float64)


def graph_of(structure: Structure, cutoff: float, references: Tensor) -> Any:
    """Return the structure as a graph of PyG; float32 is enough for its energy less those of its atoms."""
    energy = structure.energy - references[structure.z].sum()
    edge_index, shift = edges_within(structure.pos, structure.cell, structure.pbc, cutoff)
    return load("torch_geometric.data").Data(
        z=structure.z, pos=structure.pos.float(), cell=structure.cell.float()[None], edge_index=edge_index,
        shift=shift.float(), energy=energy.float().view(1, 1), force=structure.forces.float(),
    )  # fmt: skip


# The model


class Potential(nn.Module):
    """A PaiNN (Schütt, Unke and Gastegger, 2021): scalars and vectors of atoms; forces are derivatives of energies."""

    def __init__(self, cutoff: float, width: int, layers: int, scale: float = 1.0, waves: int = 16) -> None:
        super().__init__()
        self.cutoff, self.scale, self.embed = cutoff, scale, nn.Embedding(119, width)
        self.layers = nn.ModuleList(Layer(width, waves) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.register_buffer("waves", torch.arange(1, waves + 1) * torch.pi / cutoff)

    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        """Return energies, ``[graphs, 1]``, and forces."""
        data.pos.requires_grad_()
        src, dst = data.edge_index
        vectors = data.pos[dst] - data.pos[src] + torch.einsum("ei,eij->ej", data.shift, data.cell[data.batch[src]])
        lengths = vectors.norm(dim=1, keepdim=True)
        smooth = 0.5 * (torch.cos(lengths * torch.pi / self.cutoff) + 1) * (lengths < self.cutoff)
        waves = torch.sin(lengths * self.waves) / lengths * smooth
        scalars = self.embed(data.z)
        oriented = scalars.new_zeros(len(scalars), 3, scalars.shape[1])
        for layer in self.layers:
            scalars, oriented = layer(scalars, oriented, src, dst, waves, smooth, (vectors / lengths)[:, :, None])
        of_atoms = self.scale * self.head(scalars)
        energies = of_atoms.new_zeros(data.num_graphs, 1).index_add(0, data.batch, of_atoms)
        (gradient,) = torch.autograd.grad(energies.sum(), data.pos, create_graph=self.training)
        return energies, -gradient


class Layer(nn.Module):
    """One round of messages along edges, and an update of each atom."""

    def __init__(self, width: int, waves: int) -> None:
        super().__init__()
        self.filters = nn.Linear(waves, 3 * width)
        self.message = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * width))
        self.mix = nn.Linear(width, 2 * width, bias=False)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 3 * width))

    def forward(
        self, scalars: Tensor, oriented: Tensor, src: Tensor, dst: Tensor, waves: Tensor, smooth: Tensor, units: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the new scalars, ``[nodes, width]``, and vectors, ``[nodes, 3, width]``."""
        messages = self.message(scalars)[src] * self.filters(waves) * smooth
        to_scalars, along, kept = messages.chunk(3, dim=1)
        scalars = scalars.index_add(0, dst, to_scalars)
        oriented = oriented.index_add(0, dst, units * along[:, None] + oriented[src] * kept[:, None])
        one, other = self.mix(oriented).chunk(2, dim=2)
        # The sum of vectors to no neighbours is 0, where a norm has no second derivative.
        norms = (other.square().sum(1) + 1e-8).sqrt()
        scale, product, shift = self.update(torch.cat([scalars, norms], 1)).chunk(3, dim=1)
        return scalars + product * (one * other).sum(1) + shift, oriented + scale[:, None] * one


# Training


def train_epoch(model: Any, loader: Any, optimizer: Any, force_weight: float, device: str, epoch: int) -> float:
    """Train for an epoch; return the mean loss of all structures."""
    model.train()
    total, structures = 0.0, 0
    for data in progress_bar(loader, desc=f"epoch {epoch}", unit=" batches"):
        data = data.to(device)
        energies, forces = model(data)
        per_atom = (energies - data.energy) / data.ptr.diff()[:, None]
        loss = per_atom.square().mean() + force_weight * (forces - data.force).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        total += loss.item() * data.num_graphs
        structures += data.num_graphs
    return total / structures


def evaluate(model: Any, loader: Any, device: str) -> tuple[float, float]:
    """Return the mean absolute errors of energies per atom and of components of forces."""
    model.eval()
    of_energies, of_forces = [], []
    for data in loader:
        data = data.to(device)
        energies, forces = model(data)
        of_energies.append(((energies.detach() - data.energy) / data.ptr.diff()[:, None]).abs())
        of_forces.append((forces - data.force).abs())
    return float(torch.cat(of_energies).mean()), float(torch.cat(of_forces).mean())


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"train_forces.py: {error}", file=sys.stderr)
        sys.exit(1)
