"""The random numbers of an adapter for a framework's own environment, whose code has indices instead of masks."""

from envcoder_bench.core import stream
from envcoder_bench.sources.term_tasks.draws import TermStream


class RowsStream(TermStream):
    """Draws for some environments: those that the code was given, or those that it found last."""

    __slots__ = ("_all", "rows")

    def __init__(self, name, seeds, lanes, step):
        super().__init__(name, seeds, lanes, step)
        self.rows, self._all = None, (self._lanes, self._offsets)

    def note_found(self, mask, indices):
        if len(mask) == len(self._all[0]):
            self.rows = indices.flatten()

    def next(self, rows, device):
        lanes, offsets = self._all
        if rows != len(lanes):
            assert self.rows is not None and rows == len(self.rows), (self.name, rows)
            lanes, offsets = lanes[self.rows], offsets[self.rows]
        elif self.rows is not None and rows == len(self.rows):
            lanes, offsets = lanes[self.rows], offsets[self.rows]
        self._lanes, self._offsets = lanes, offsets
        return super().next(rows, device)


class NamedFunc:
    """A term's function, which draws in the name of the term, for the environments that it is given."""

    def __init__(self, func, name, takes_ids):
        self._func, self._name, self._takes_ids = func, name, takes_ids

    def __call__(self, env, *args, **params):
        current = stream.current()
        if isinstance(current, TermStream):
            current.rename(self._name)
            if self._takes_ids:
                current.rows = args[0]
        return self._func(env, *args, **params)

    def __getattr__(self, name):
        if name.startswith("_"):  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._func, name)
