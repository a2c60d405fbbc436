"""lstm."""

from torch import nn

from layers_recurrent import recurrent, sequences


def cases():
    c = sequences(nn.LSTM, "lstm")

    def add(case, *args, **options):
        c[f"lstm_{case}"] = recurrent(nn.LSTM, *args, **options)

    add("one_step", [1, 2, 3], 5)
    add("two_layers", [3, 2, 4], 3, states=True, num_layers=2)
    add("three_layers", [3, 4, 2], 2, num_layers=3, bidirectional=True)
    add("packed_states", [4, 3, 2], 5, lengths=[1, 3, 3], states=True)
    add("packed_three_layers", [3, 2, 2], 3, lengths=[2, 3], num_layers=3)
    add("projection", [4, 3, 2], 5, states=True, proj_size=3)
    add("projection_no_bias", [3, 5, 2], 4, proj_size=1, bias=False)
    add("projection_layers", [3, 2, 3], 4, states=True, proj_size=2, num_layers=2,
        bidirectional=True)
    add("projection_packed", [3, 4, 2], 3, states=True, proj_size=2, lengths=[2, 4, 1],
        num_layers=2, bidirectional=True, batch_first=True)
    return c
