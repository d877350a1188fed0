"""What Redis answers, as people read it."""

from __future__ import annotations

from redis.exceptions import ResponseError

from crawlproj.redisio.answers import is_temporary, text_of


def test_an_error_inside_a_script_is_shown_without_the_place_in_it() -> None:
    wrapped = ResponseError(
        "Error running script (call to f_c6631fb3): @user_script:1: @user_script: 1: "
        "-MISCONF Errors writing to the AOF file: No space left on device"
    )

    assert text_of(wrapped) == "MISCONF Errors writing to the AOF file: No space left on device"
    assert is_temporary(text_of(wrapped))
