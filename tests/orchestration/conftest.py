from tests.publish.conftest import configured

__all__ = ["configured"]
