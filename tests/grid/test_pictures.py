"""Pictures of a grid are drawn for every rate and end."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from envcoder_bench.grid import pictures
from envcoder_bench.grid.pictures import PICTURES, draw_pictures
from envcoder_bench.terrain.arenas import Arena, Zone


@pytest.mark.slow
@pytest.mark.parametrize("complete", [0, 3, 10])
def test_pictures_are_drawn_for_any_completion_rate(tmp_path, complete) -> None:
    rows = [
        {
            "policy": "p", "environment": "stairs", "completion": k < complete, "progress": float(k), "zone_reached": 1,
            "fall_detected": k == 9, "flip_detected": False, "fall_location": [float(k), 3.0], "total_energy": 1.0,
            "stability_score": 0.2, "mean_velocity": 0.1, "episode_length": 9, "time_to_complete": None,
            "zone_stability": [0.1 * k, None],
        }
        for k in range(10)
    ]  # fmt: skip
    paths = draw_pictures(rows, [Arena("stairs", (Zone("flat"), Zone("flat")), 6.0)], tmp_path)
    assert [path.name for path in paths] == list(PICTURES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.slow
def test_legend_of_long_names_is_inside_the_picture() -> None:
    """Five policies on one terrain, as a demo's run has them."""
    rows = [
        {"policy": f"runs/demo_Anymal/policy_of_candidate_{k}", "environment": "stairs", "completion": True}
        | {"progress": 1.0, "fall_detected": False, "flip_detected": False, "fall_location": None, "total_energy": 1.0}
        | {"stability_score": 0.2, "mean_velocity": 0.1, "episode_length": 9, "time_to_complete": 1.0}
        | {"zone_reached": 1, "zone_stability": [0.1, None]}
        for k in range(5)
    ]
    for draw in (pictures._completion, pictures._progress):
        figure = draw(rows, [Arena("stairs", (Zone("flat"), Zone("flat")), 6.0)])
        FigureCanvasAgg(figure).draw()
        (axes,) = figure.axes
        legend, frame = axes.get_legend().get_window_extent(), axes.get_window_extent()
        assert legend.x0 >= 0 and legend.x1 <= figure.bbox.width and legend.y1 <= figure.bbox.height
        assert frame.width > 0.7 * figure.bbox.width and frame.height > 0.4 * figure.bbox.height
