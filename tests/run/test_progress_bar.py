"""What the progress bar says while it waits."""

from epf.run._runner import progress_bar


def test_it_says_compiling_until_the_first_steps_are_done(capsys):
    with progress_bar(10, "EPF", True) as advance:
        assert "EPF, compiling" in capsys.readouterr().err
        advance(4)
    said = capsys.readouterr().err
    assert "compiling" not in said.split("\r")[-1]
    assert "4/10" in said


def test_it_is_silent_where_it_should_be(capsys):
    with progress_bar(10, "EPF", False) as advance:
        advance(10)
    assert capsys.readouterr().err == ""
