"""The sites of a compiled robot, and the addresses of the Jacobian and the mass matrix."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import mujoco
import numpy as np


@dataclass(frozen=True)
class SiteModel:
    """The sites of a robot, and the one whose Jacobian is computed.

    Attributes:
        names: the names of the sites.
        bodies, roots: for each site, the ids of its body and of the first body of that body's tree.
        quats: for each site, its orientation in its body, wxyz.
        jacobian: index of the site in ``names``, or None.
        moves: for each joint, whether it moves that site.
        inertia: ``(num_dofs, num_dofs)`` index of each entry of the mass matrix in MjData's ``M``; -1 where it is 0.
    """

    names: list[str]
    bodies: np.ndarray
    roots: np.ndarray
    quats: np.ndarray
    jacobian: int | None
    moves: np.ndarray
    inertia: np.ndarray


def find_sites(model: mujoco.MjModel, first_qvel: int, num_dofs: int) -> SiteModel:
    """Look up the sites and, if the file names a Jacobian site, the data of the Jacobian."""
    names = [model.site(k).name for k in range(model.nsite)]
    if not all(names):
        raise ValueError("a site has no name; name every site")
    wanted, jacobian = _text(model, "jacobian"), None
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"the text 'jacobian' names the site '{wanted}'; there are {', '.join(names) or 'none'}")
        jacobian = names.index(wanted)
    moves = np.zeros(num_dofs, dtype=bool)
    inertia = np.full((num_dofs, num_dofs), -1, dtype=np.int64)
    if jacobian is not None:
        body = int(model.site_bodyid[jacobian])
        while body:
            first = int(model.body_dofadr[body]) - first_qvel
            for dof in range(first, first + int(model.body_dofnum[body])):
                if 0 <= dof < num_dofs:  # not the six of a free joint
                    moves[dof] = True
            body = int(model.body_parentid[body])
        for row in range(num_dofs):
            start = int(model.M_rowadr[first_qvel + row])
            for place in range(start, start + int(model.M_rownnz[first_qvel + row])):
                column = int(model.M_colind[place]) - first_qvel
                if column >= 0:
                    inertia[row, column] = inertia[column, row] = place
    return SiteModel(
        names=names,
        bodies=model.site_bodyid.astype(np.int64),
        roots=model.body_rootid[model.site_bodyid].astype(np.int64),
        quats=model.site_quat.copy(),
        jacobian=jacobian,
        moves=moves,
        inertia=inertia,
    )


def _text(model: mujoco.MjModel, name: str) -> str | None:
    """Return a custom text of the file, or None."""
    text = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXT, name)
    if text < 0:
        return None
    first = int(model.text_adr[text])
    return model.text_data[first : first + int(model.text_size[text])].split(b"\0")[0].decode()
