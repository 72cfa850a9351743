"""Linear algebra has one thread while a program of the library runs, and as many as before afterwards."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from epf.numerics._compile import compiled, one_thread


def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several():
    """Several threads, also where the machine has one core."""
    with one_thread():  # loads the library
        pass
    with threadpool_limits(3, user_api="blas"):
        if threads() != {3}:
            pytest.skip("this build of the linear algebra has one thread")
        yield


def test_one_inside_and_as_many_as_before_outside():
    with one_thread():
        with one_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {3}


def test_an_error_restores_them():
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert threads() == {3}


def test_a_program_has_one():
    seen = []
    compiled(lambda x: seen.append(threads()))(1.0)  # while it is traced
    assert seen == [{1}]
    assert threads() == {3}
