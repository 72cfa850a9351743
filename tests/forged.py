"""Files as someone might forge them."""

import json

from epf.storage import _checkpoint as checkpoint
from epf.storage import _tensors as tensors


def resealed(content, change, sign=False):
    """The same file with another header and table, its checksum right."""
    length = int.from_bytes(content[:8], "little")
    top = json.loads(content[8 : 8 + length])
    header = json.loads(top["__metadata__"]["epf"])
    data = change(header, top, content[8 + length :])
    if sign and {"model", "method", "model_traces"} <= header.keys():
        header["fingerprint"] = checkpoint._fingerprint(header)
    text = json.dumps(header)
    table = {name: entry for name, entry in top.items() if name != "__metadata__"}
    hasher = tensors._hasher(text, table)
    hasher.update(data)
    new = json.dumps({"__metadata__": {"epf": text, "checksum": hasher.hexdigest()}, **table}).encode()
    return len(new).to_bytes(8, "little") + new + data


def mutate_meaning(content, random_):
    """One entry of the header or the table becomes something else, and the checksum follows."""
    odd = [
        None,
        True,
        -1,
        0,
        2**31,
        2**63,
        10**40,
        1.5,
        "",
        "x",
        [],
        {},
        [1],
        [[]],
        {"class": "EPF", "fields": {}},
        "F64",
    ]

    def change(header, top, data):
        place = random_.choice([header, header, header["facts"], header["method"], *top.values()])
        if isinstance(place, dict) and place:
            name = random_.choice(list(place))
            if random_.random() < 0.2:
                del place[name]
            elif isinstance(place[name], list) and place[name] and random_.random() < 0.7:
                place[name][random_.randrange(len(place[name]))] = random_.choice(odd)
            else:
                place[name] = random_.choice(odd)
        if random_.random() < 0.1:
            data = data[: random_.randrange(len(data))]
        return data

    return bytearray(resealed(bytes(content), change, sign=random_.random() < 0.5))
