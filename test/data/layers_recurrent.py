"""rnn and gru, and the cells of all three."""

from collections import OrderedDict

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from layers import Case, constant


def flat(out):
    """(y, h_n) or (y, (h_n, c_n)) as a row."""
    y, state = out
    return (y, *state) if isinstance(state, tuple) else (y, state)


def state_of(m, states):
    return (states[0] if len(states) == 1 else tuple(states)) if states else None


def call(m, x, *states):
    return flat(m(x, state_of(m, states)))


def call_packed(m, x, lengths, *states):
    packed = pack_padded_sequence(x, lengths, batch_first=m.batch_first, enforce_sorted=False)
    y, state = m(packed, state_of(m, states))
    steps = x.shape[1 if m.batch_first else 0]
    y, _ = pad_packed_sequence(y, batch_first=m.batch_first, total_length=steps)
    return flat((y, state))


def call_cell(m, x, *states):
    return m(x, state_of(m, states))


def recurrent(kind, x, hidden, states=False, lengths=None, training=True, **options):
    """A case of nn.RNN, nn.LSTM or nn.GRU for an input of shape x."""
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    inputs = [x]
    if lengths is not None:
        inputs.append(constant(lengths))
    if states:
        batch = [] if len(x) == 2 else [x[0 if options.get("batch_first") else 1]]
        inputs.append([layers, *batch, options.get("proj_size", hidden)])
        if kind is nn.LSTM:
            inputs.append([layers, *batch, hidden])
    text = ", ".join(f"{k} {v}" for k, v in options.items())
    return Case(lambda: kind(x[-1], hidden, **options), inputs, training,
                call if lengths is None else call_packed, text)


def sequences(kind, name):
    """The cases of every kind of recurrent module."""
    c = OrderedDict()

    def add(case, *args, **options):
        c[f"{name}_{case}"] = recurrent(kind, *args, **options)

    add("plain", [5, 3, 4], 3)
    add("wide", [3, 5, 3], 17, states=True)
    add("states", [4, 2, 3], 5, states=True)
    add("no_bias", [3, 2, 5], 4, bias=False)
    add("batch_first", [3, 5, 4], 3, states=True, batch_first=True)
    add("unbatched", [4, 3], 5, states=True)
    add("bidirectional", [4, 3, 2], 3, bidirectional=True)
    add("everything", [2, 4, 3], 3, states=True, num_layers=2, bidirectional=True,
        batch_first=True, bias=False)
    add("evaluation", [3, 2, 3], 3, num_layers=2, dropout=0.5, training=False)
    add("packed", [5, 4, 3], 3, lengths=[2, 5, 1, 3])
    add("packed_everything", [5, 6, 2], 3, lengths=[3, 1, 6, 6, 2], states=True, num_layers=2,
        bidirectional=True, batch_first=True)
    return c


def cases():
    c = OrderedDict([*sequences(nn.RNN, "rnn").items(), *sequences(nn.GRU, "gru").items()])
    c["rnn_relu"] = recurrent(nn.RNN, [4, 3, 4], 5, states=True, num_layers=2, bidirectional=True,
                              nonlinearity="relu")

    for name, kind, states in (("cell_rnn", nn.RNNCell, 1), ("cell_lstm", nn.LSTMCell, 2),
                               ("cell_gru", nn.GRUCell, 1)):
        def add(case, x, hidden, state=True, kind=kind, states=states, **options):
            shape = [*x[:-1], hidden]
            c[f"{name}{case}"] = Case(lambda: kind(x[-1], hidden, **options),
                                      [x] + [shape] * (states if state else 0), True, call_cell,
                                      ", ".join(f"{k} {v}" for k, v in options.items()))

        add("", [3, 4], 5)
        add("_wide", [2, 3], 19)
        add("_no_state", [3, 2], 3, state=False)
        add("_unbatched", [4], 3)
        add("_no_bias", [2, 5], 4, bias=False)
    c["cell_rnn_relu"] = Case(lambda: nn.RNNCell(3, 5, nonlinearity="relu"), [[4, 3], [4, 5]], True,
                              call_cell, "nonlinearity relu")
    return c
