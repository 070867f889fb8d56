"""Tables at every width: names stay whole, columns go in their order, a pipe has everything."""

import pytest
from rich.text import Text

from webhook.cli.grid import LEAST, Column, Grid, listing, number, prose
from webhook.cli.options import UNBOUNDED
from webhook.cli.screen import Screen

CAUSE = "team vision holds 8 of 8; next when 2 GPUs come back"
HOLDERS = "vision/Job/train 12, vision/Pod/eval 4"


def line_table():
    table = Grid("pod", number("GPUs", goes=2), Column("user", goes=1), prose("waits for"), listing("held by", goes=3))
    table.add_row(*map(Text, ("vision/a-pod-with-a-long-name", "1,024", "ann", CAUSE, HOLDERS)))
    table.add_row(*map(Text, ("nlp/b", "2", "bob", "a word", "-")))
    return table


def shown(table, width):
    screen = Screen(width=width, is_colored=False)
    screen.show(table)
    return screen.lines


def words_of(lines):
    return {word for line in lines for word in line.split()}


def test_a_pipe_has_a_line_for_each_row():
    assert shown(line_table(), UNBOUNDED) == [
        f"pod                             GPUs  user  waits for{' ' * 45}held by",
        f"vision/a-pod-with-a-long-name  1,024  ann   {CAUSE}  {HOLDERS}",
        f"nlp/b                              2  bob   a word{' ' * 48}-",
    ]


def test_texts_break_at_spaces_and_lists_behind_commas_before_a_column_goes():
    assert shown(line_table(), 98) == [
        "pod                             GPUs  user  waits for                     held by",
        "vision/a-pod-with-a-long-name  1,024  ann   team vision holds 8 of 8;     vision/Job/train 12,",
        "                                            next when 2 GPUs come back    vision/Pod/eval 4",
        "nlp/b                              2  bob   a word                        -",
    ]


GONE = {92: "", 88: "user", 82: "user, GPUs", 60: "user, GPUs, held by", 20: "user, GPUs, held by"}


@pytest.mark.parametrize("width", GONE)
def test_columns_go_in_their_order_and_the_screen_says_which(width):
    assert ", ".join(line_table().fitted(width).left_out) == GONE[width]
    note = f"no room at {width} columns for: {GONE[width]}; a pipe shows all"
    assert " ".join(shown(line_table(), width)).endswith(note) == bool(GONE[width])


@pytest.mark.parametrize("width", range(10, 140, 7))
def test_no_width_breaks_a_word(width):
    allowed = words_of(shown(line_table(), UNBOUNDED))
    assert words_of([line.plain for line in line_table().fitted(width).lines]) <= allowed


@pytest.mark.parametrize("width", range(62, 140, 7))
def test_lines_are_as_wide_as_the_terminal_at_most(width):
    assert max(len(line.plain.rstrip()) for line in line_table().fitted(width).lines) <= width


def test_a_text_keeps_a_width_in_which_it_can_be_read():
    table = Grid("n", prose("text"), Column("x", goes=1))
    table.add_row(*map(Text, ("a", "one " * 20, "y" * 30)))
    narrow = table.fitted(40)
    assert narrow.left_out == ("x",)
    assert all(len(line.plain.rstrip()) >= LEAST - 5 for line in narrow.lines[1:-1])


def test_headings_break_at_spaces_at_the_bottom_of_their_cell():
    table = Grid(number("lost GPU-hours"), "name")
    table.add_row(Text("12"), Text("x"))
    assert shown(table, 15) == ["     lost", "GPU-hours  name", "       12  x"]


def test_styles_stay_with_their_words_when_a_text_breaks():
    table = Grid(prose("text"))
    table.add_row(Text.assemble("plain words that are long ", ("red", "bold red"), " and more of them"))
    [line] = [line for line in table.fitted(26).lines if "red" in line.plain]
    [span] = line.spans
    assert line.plain[span.start : span.end] == "red"


def test_wide_letters_count_as_two():
    table = Grid("name", "x")
    table.add_row(Text("漢字"), Text("y"))
    assert shown(table, UNBOUNDED)[-1] == "漢字  y"


def test_steps_have_their_names_beside_them():
    screen = Screen(width=30, is_colored=False)
    screen.show_steps([("one", ["words that are too long for it"]), ("a name that is longer", ["text"])])
    assert screen.lines == [
        "one       words that are too",
        "          long for it",
        "a name that is longer",
        "          text",
    ]


def test_colors_change_no_text():
    plain, colored = (Screen(width=60, is_colored=each) for each in (False, True))
    for screen in (plain, colored):
        screen.show(line_table(), "", Text("bold words", style="bold"))
    assert Text.from_ansi(colored.text).plain.split() == plain.text.split()
    assert "\x1b[1mbold words\x1b[0m" in colored.text
