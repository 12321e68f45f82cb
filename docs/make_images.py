"""Draw the README's picture from the run in results/: python docs/make_images.py"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import piratenets as pn

ROOT = Path(__file__).parents[1]


def main() -> None:
    run = pn.load(ROOT / "results" / "allen-cahn")
    scored = run.evaluate()
    assert run.reference is not None
    t, x = run.reference.coordinates["t"], run.reference.coordinates["x"]
    shape = len(t), len(x)
    prediction = scored.prediction["u"].reshape(shape)
    reference = run.reference.table()[:, 0].reshape(shape)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
    error = np.abs(prediction - reference)
    for axis, values, title, colours in (
            (axes[0], reference, "reference", "RdBu_r"), (axes[1], prediction, "prediction",
                                                          "RdBu_r"),
            (axes[2], error, f"|error|, relative L2 {scored.relative_l2['u']:.1e}", "magma")):
        image = axis.pcolormesh(t, x, values.T, cmap=colours, rasterized=True)
        axis.set(xlabel="t", ylabel="x", title=title)
        figure.colorbar(image, ax=axis)
    figure.savefig(ROOT / "docs" / "images" / "allen-cahn.png", dpi=90)


if __name__ == "__main__":
    main()
