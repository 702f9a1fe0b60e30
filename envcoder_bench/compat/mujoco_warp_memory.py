"""Arrays of MuJoCo Warp's worlds that steps do not touch.

Uses ``smooth.skip_qacc_smooth``, and knowledge of the fields of ``Data`` that the code of MuJoCo Warp 4.0 reads.

Why: ``make_data`` allocates arrays for every solver, integrator and option. For an ANYmal, a fifth of the memory is
unused.

Upstream: google-deepmind/mujoco_warp issue 926 (open) is about memory that is allocated in advance; no issue about
unused arrays was found.
"""

# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false, reportArgumentType=false

import mujoco_warp as mjw
import warp as wp

from mujoco_batches.compat import difference, warn_once

_READ = "4.0."  # the version whose code was read; with another version all arrays are kept


def drop_untouched(model: mjw.Model, data: mjw.Data) -> None:
    """Free the large arrays that no step of this model reads or writes; its options must not change after this."""
    reason = _difference()
    if reason:
        warn_once("MuJoCo Warp's Data", reason, "arrays that no step uses are kept, and a robot needs more memory")
        return
    from mujoco_warp._src import smooth

    option, names = model.opt, []
    if option.integrator != mjw.IntegratorType.DISCRETE:
        names += ["qH", "qHLD", "efm_fluid"]
    if option.integrator != mjw.IntegratorType.IMPLICIT:
        names += ["qLU"]
    if not option.enableflags & mjw.EnableBit.SLEEP:  # nor islands of bodies
        names += ["map_efc2iefc", "map_iefc2efc", "efc_islandid", "efc.island"]
    if not model.is_sparse:
        names += ["efc.jtdaj_adr", "efc.jtdaj_nrow"]
    if option.disableflags & mjw.DisableBit.SENSOR and not option.run_rne_postconstraint:
        names += ["sensordata", "subtree_linvel", "subtree_angmom", "cfrc_ext"]
    for name in names:
        owner, name = (data.efc, name[4:]) if name.startswith("efc.") else (data, name)
        old = getattr(owner, name)
        setattr(owner, name, wp.empty((old.shape[0], 0), dtype=old.dtype, device=old.device))
    if smooth.skip_qacc_smooth(model, data):
        data.qLD = _share_row(data.qLD)  # only its shape is needed, for temporary arrays


def _difference() -> str:
    """Return the difference of MuJoCo Warp from the version whose code was read; empty if there is none."""
    if not mjw.__version__.startswith(_READ):
        return f"it is version {mjw.__version__}"
    try:
        from mujoco_warp._src import smooth
    except ImportError as error:
        return str(error)
    return difference(smooth, {"skip_qacc_smooth": ("m", "d")})


def _share_row(old: wp.array) -> wp.array:
    """Return an array of the same shape, whose rows are all in the same memory."""
    row = wp.zeros((1, *old.shape[1:]), dtype=old.dtype, device=old.device)
    new = wp.array(ptr=row.ptr, dtype=old.dtype, shape=old.shape, strides=(0, *row.strides[1:]), device=old.device)
    new._ref = row  # keeps the memory
    return new
