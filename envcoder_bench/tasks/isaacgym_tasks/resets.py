"""Begin episodes by a task's own code, so that they affect no other environments and depend on none."""

from collections.abc import Callable

from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.driver import Driver
from envcoder_bench.tasks.isaacgym_tasks.randomizer import Randomizer
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene
from envcoder_bench.tasks.isaacgym_tasks.source import Source
from envcoder_bench.tasks.isaacgym_tasks.tensors import Unmasked


class Resets:
    """Resets of some environments, with random numbers of their own; rows of other environments are restored.

    Args:
        source: where the task comes from, for messages.
        driver, scene, draws: of the task.
        unmasked: restores rows of other environments.
        randomizer: None without domain randomization.
    """

    def __init__(
        self,
        source: Source,
        driver: Driver,
        scene: Scene,
        draws: Draws,
        unmasked: Unmasked,
        randomizer: Randomizer | None,
    ) -> None:
        self._source, self._driver, self._scene, self._draws = source, driver, scene, draws
        self._unmasked, self._randomizer = unmasked, randomizer

    def begin(self, mask: Tensor, env_ids: Tensor, step: int) -> None:
        """Begin episodes in the environments ``env_ids``, where ``mask`` is True, and observe their first states."""
        self.randomize(mask, env_ids, step)
        self._unmasked.save()
        with self._source.errors_of_code(), self._draws.generators_kept():
            for own in self._by_group(mask, env_ids):
                self._reset(own, step)
            self._draws.begin_step(-1 - step)
            with self._draws.call("observe", None, True):
                self._driver.observe()
        self._unmasked.restore(mask)

    def randomize(self, mask: Tensor, env_ids: Tensor, step: int) -> None:
        """Randomize what is due at a reset of the environments ``env_ids``, where ``mask`` is True."""
        if self._randomizer is None:
            return
        with self._source.errors_of_code():
            self._randomizer.refresh(step)
            for own in self._by_group(mask, env_ids):
                self._randomizer.randomize(own, step)

    def overwrite(self, what: str, mask: Tensor, write: Callable[[], None]) -> bool:
        """Overwrite initial states or goals of new episodes where ``mask`` is True, and observe them again.

        Returns:
            Whether there are any.
        """
        if not bool(mask.any()):
            return False
        self._unmasked.save()
        write()
        with self._draws.call(f"observe {what}", mask.nonzero().flatten(), True):
            self._driver.observe()
        self._unmasked.restore(mask)
        return True

    def _by_group(self, mask: Tensor, env_ids: Tensor) -> list[Tensor]:
        """Return the environments to reset in each call of the task's code.

        On a CPU a call has environments of one group, so that the code mixes no groups. On CUDA it has all: results
        are not bitwise reproducible there, and each call costs time.
        """
        if mask.device.type != "cpu":
            return [env_ids]
        size = int(self._draws.lanes.max()) + 1
        found = mask.split(size)
        return [own.nonzero().flatten() + k * size for k, own in enumerate(found) if bool(own.any())]

    def _reset(self, env_ids: Tensor, step: int) -> None:
        self._draws.begin_step(-1 - step)  # negative, so that draws differ from those of the step
        before = self._scene.get_state() if self._driver.advances and env_ids.device.type == "cpu" else None
        with self._draws.call("reset", env_ids, True), self._scene.own_properties.watched():
            self._driver.reset(env_ids)
        if before is not None:
            self._scene.undo_others(env_ids, before)
            self._driver.gym.changed()
