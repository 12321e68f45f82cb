import os

import jax
import pytest

import piratenets  # noqa: F401  (turns float64 on)

# The classic mistake with residuals is (n,) - (n, 1): here it is an error.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """References computed by the tests go to a folder of theirs, unless one is given."""
    with pytest.MonkeyPatch.context() as patch:
        if "PIRATENETS_CACHE" not in os.environ:
            patch.setenv("PIRATENETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def quick_compilation():
    """For modules whose time is compilation: small programs, hardly optimised."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
