"""Tests of the plugin, with Google's protobuf module of Python on the other side; in rxd if RXD names it."""
import base64
import contextlib
import json
import math
import os
import random
import resource
import struct
import subprocess
import sys
import time
import unittest

if os.environ.get("SANITIZE"):
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(HERE, "..", "..", "testing"), os.path.join(ROOT, "build")]
import everything_pb2 as new  # noqa: E402
import host  # noqa: E402
import older_pb2 as old  # noqa: E402
import orders_pb2 as orders  # noqa: E402
from format_test import LETTERS, FormatTest, same  # noqa: E402
from google.protobuf import descriptor  # noqa: E402
from plugin_test import RXD  # noqa: E402

PLUGIN = os.environ.get("PLUGIN", os.path.join(ROOT, "protobuf.so"))
SEED = int(os.environ.get("SEED", "20261129"))
COUNT = int(os.environ.get("COUNT", "300"))
MUTATIONS = int(os.environ.get("MUTATIONS", "1000"))
Field = descriptor.FieldDescriptor
NEW, OLD = os.path.join(ROOT, "build", "everything.pb"), os.path.join(ROOT, "build", "older.pb")
LEAST, MOST = -(2**63), 2**63 - 1


# ---- The other side: messages at random, and what they are as events ----


def number(rng, bits, signed):
    least, most = (-(2**(bits - 1)), 2**(bits - 1) - 1) if signed else (0, 2**bits - 1)
    edge = rng.choice([0, 1, 127, 128, 2**14, 2**31, 2**32, 2**63, least, most, rng.randint(least, most)])
    return max(least, min(most, edge + rng.randint(-1, 1)))


def text(rng):
    return "".join(rng.choice(LETTERS) for _ in range(rng.choice([0, 1, 5, 30, 127, 128, 200])))


def real(rng):
    return rng.choice([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, rng.uniform(-1e9, 1e9), math.ldexp(rng.random(), rng.randint(-1000, 1000))])


def scalar(rng, field):
    kind = field.type
    if kind == Field.TYPE_DOUBLE:
        return real(rng)
    if kind == Field.TYPE_FLOAT:
        number_ = real(rng)
        return number_ if not math.isfinite(number_) or abs(number_) < 3e38 else 0.1
    if kind == Field.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == Field.TYPE_STRING:
        return text(rng)
    if kind == Field.TYPE_BYTES:
        return rng.randbytes(rng.choice([0, 1, 3, 127, 128, 300]))
    if kind == Field.TYPE_ENUM:
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return 0
        is_open = field.file.syntax == "proto3"
        return rng.choice([value.number for value in field.enum_type.values] + ([77, -1] if is_open else []))
    bits = 64 if kind in (Field.TYPE_INT64, Field.TYPE_UINT64, Field.TYPE_FIXED64, Field.TYPE_SFIXED64, Field.TYPE_SINT64) else 32
    return number(rng, bits, kind not in (Field.TYPE_UINT64, Field.TYPE_FIXED64, Field.TYPE_UINT32, Field.TYPE_FIXED32))


def plain(rng, depth=0):
    """What a Struct can have."""
    choice = rng.random()
    if depth < 3 and choice < 0.3:
        return {text(rng): plain(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    if depth < 3 and choice < 0.5:
        return [plain(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return rng.choice([None, True, False, 0.0, -1.5, 1e300, text(rng)])


def fill(rng, message, depth=0):
    """Fields at random."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = rng.choice([0, 1, -1, 2**31, -62135596800, 253402300799, 9223372035, rng.randint(-62135596800, 253402300799)])
        message.nanos = rng.choice([0, 1, 999999999, rng.randrange(10**9)])
    elif name == "google.protobuf.Duration":
        sign = rng.choice([-1, 1])
        message.seconds = sign * rng.choice([0, 1, 315576000000, rng.randint(0, 9 * 10**9), rng.randint(0, 315576000000)])
        message.nanos = sign * rng.choice([0, 1, 999999999, rng.randrange(10**9)])
    elif name == "google.protobuf.FieldMask":
        message.paths.extend(rng.sample(["user", "user.display_name", "a_b_c", "x.y_z.w"], rng.randint(0, 3)))
    elif name == "google.protobuf.Struct":
        message.update({text(rng): plain(rng) for _ in range(rng.randint(0, 3))})
    elif name == "google.protobuf.ListValue":
        message.extend([plain(rng, 1) for _ in range(rng.randint(0, 3))])
    elif name == "google.protobuf.Value":
        put_plain(message, plain(rng))
    elif name == "google.protobuf.Any":
        inner = rng.choice([new.Numbers, new.Choice, new.Known().time.__class__, new.Known().value.__class__, None])
        if inner is None:
            message.type_url, message.value = "example.org/not.Known", rng.randbytes(rng.randint(0, 9))
        else:
            inner = inner()
            fill(rng, inner, depth + 1)
            message.Pack(inner)
    else:
        for field in list(message.DESCRIPTOR.fields) + extensions(message):
            # What must be there, besides.
            if field.label != Field.LABEL_REQUIRED and rng.random() < (0.5 if depth < 3 else 0.85):
                continue
            if field.message_type is not None and depth > 3 and field.label != Field.LABEL_REQUIRED:
                continue
            fill_field(rng, message, field, depth)
    return message


def extensions(message):
    return list(old_pool.FindAllExtensions(message.DESCRIPTOR)) if message.DESCRIPTOR.is_extendable else []


def without_known(message):
    """Merged durations and Any messages may be invalid."""
    message.ClearField("known")
    for one in message.more:
        without_known(one)
    return message


old_pool = old.DESCRIPTOR.pool


def fill_field(rng, message, field, depth):
    count = rng.choice([0, 1, 2, 3] if depth else [0, 1, 2, 40])
    if field.is_extension:
        target = message.Extensions
        if field.label == Field.LABEL_REPEATED:
            target[field].extend([scalar(rng, field) for _ in range(count)])
        elif field.message_type is not None:
            target[field].SetInParent()
            fill(rng, target[field], depth + 1)
        else:
            target[field] = scalar(rng, field)
        return
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        target = getattr(message, field.name)
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        for _ in range(min(count, 5)):
            if value.message_type is not None:
                fill(rng, target[scalar(rng, key)], depth + 1)
            else:
                target[scalar(rng, key)] = scalar(rng, value)
    elif field.label == Field.LABEL_REPEATED:
        target = getattr(message, field.name)
        for _ in range(count if field.message_type is None else min(count, 3)):
            if field.message_type is not None:
                fill(rng, target.add(), depth + 1)
            else:
                target.append(scalar(rng, field))
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
        fill(rng, getattr(message, field.name), depth + 1)
    else:
        setattr(message, field.name, scalar(rng, field))


def put_plain(message, value):
    if value is None:
        message.null_value = 0
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, float):
        message.number_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, dict):
        message.struct_value.SetInParent()
        message.struct_value.update(value)
    else:
        message.list_value.SetInParent()
        message.list_value.extend(value)


def from_plain(message):
    """The value of a google.protobuf.Value."""
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    value = getattr(message, kind)
    if kind == "struct_value":
        return {name: from_plain(value.fields[name]) for name in value.fields}
    return [from_plain(one) for one in value.values] if kind == "list_value" else value


def scalar_event(field, value):
    if field.type == Field.TYPE_ENUM:
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return None
        named = field.enum_type.values_by_number.get(value)
        # Of several names, the first one that the file has.
        return next(one.name for one in field.enum_type.values if one.number == value) if named else value
    return value


def in_camel_case(path):
    parts = path.split("_")
    return parts[0] + "".join(part.capitalize() for part in parts[1:])


def as_time(seconds, nanoseconds):
    whole = seconds * 10**9 + nanoseconds
    if LEAST <= whole <= MOST:
        return {"$timestamp": whole}
    days, rest = divmod(seconds, 86400)
    import datetime
    date = datetime.date.fromordinal(days + 719163)
    shown = f"{date.year:04}-{date.month:02}-{date.day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return shown + (f".{nanoseconds:09}" if nanoseconds else "") + "Z"


def event_of(message, defaults="implicit", names="name"):
    """What the plugin makes of a message."""
    name = message.DESCRIPTOR.full_name
    inner = lambda value: event_of(value, defaults, names)  # noqa: E731
    if name == "google.protobuf.Timestamp":
        return as_time(message.seconds, message.nanos)
    if name == "google.protobuf.Duration":
        whole = message.seconds * 10**9 + message.nanos
        if LEAST <= whole <= MOST:
            return {"$duration": whole}
        return f"{message.seconds}" + (f".{abs(message.nanos):09}" if message.nanos else "") + "s"
    if name == "google.protobuf.FieldMask":
        return ",".join(map(in_camel_case, message.paths))
    if name == "google.protobuf.Struct":
        return {key: from_plain(message.fields[key]) for key in message.fields}
    if name == "google.protobuf.ListValue":
        return [from_plain(one) for one in message.values]
    if name == "google.protobuf.Value":
        return from_plain(message)
    if name == "google.protobuf.Any":
        if not message.type_url and not message.value:
            return {}
        known = message.type_url.rsplit("/", 1)[-1]
        try:
            inner_message = message_class(known)()
        except KeyError:
            return {"@type": message.type_url, "value": message.value}
        inner_message.ParseFromString(message.value)
        value = inner(inner_message)
        return {"@type": message.type_url, **value} if known.startswith("test.") else {"@type": message.type_url, "value": value}
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return message.value
    made = {}
    for field in sorted(list(message.DESCRIPTOR.fields) + extensions(message), key=lambda field: field.number):
        shown = f"[{field.full_name}]" if field.is_extension else getattr(field, names)
        value = message.Extensions[field] if field.is_extension else getattr(message, field.name)
        if field.label == Field.LABEL_REPEATED:
            if len(value) == 0 and defaults == "none":
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key_field, value_field = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
                made[shown] = {
                    (str(key).lower() if isinstance(key, bool) else str(key)):
                    inner(value[key]) if value_field.message_type is not None else scalar_event(value_field, value[key]) for key in value}
                del key_field
            else:
                made[shown] = [inner(one) if field.message_type is not None else scalar_event(field, one) for one in value]
            continue
        has_presence = field.has_presence if hasattr(field, "has_presence") else (
            field.file.syntax == "proto2" or field.containing_oneof is not None or field.message_type is not None)
        if has_presence:
            is_there = message.HasExtension(field) if field.is_extension else message.HasField(field.name)
            in_oneof = field.containing_oneof is not None and not field.containing_oneof.name.startswith("_")
            if not is_there and (defaults != "all" or field.message_type is not None or in_oneof):
                continue
            if not is_there and field.containing_oneof is not None and defaults != "all":
                continue
        elif defaults == "none" and value == field.default_value and not (isinstance(value, float) and math.copysign(1, value) < 0):
            continue
        made[shown] = inner(value) if field.message_type is not None else scalar_event(field, value)
    return made


def message_class(name):
    from google.protobuf import symbol_database
    if not (name.startswith("test.") or name.startswith("google.protobuf.")):
        raise KeyError(name)
    return symbol_database.Default().GetSymbol(name)


def like(left, right):
    """`same`, but maps may have another order, as they do in messages."""
    if isinstance(left, dict) and isinstance(right, dict):
        return sorted(left) == sorted(right) and all(like(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(like, left, right))
    return same(left, right)


def varint(value):
    made = b""
    while value >= 0x80:
        made += bytes([value & 0x7f | 0x80])
        value >>= 7
    return made + bytes([value])


def tagged(number_, data):
    return varint(number_ << 3 | 2) + varint(len(data)) + data


@contextlib.contextmanager
def quiet():
    """libprotobuf prints what it refuses to standard error."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def is_read(make, data):
    """Whether the other side reads it."""
    message = make()
    with quiet():
        try:
            message.ParseFromString(data)
            return message.IsInitialized()
        except Exception:  # noqa: BLE001 (a class of the implementation)
            return False


class ProtobufTest(FormatTest):
    plugin, format = PLUGIN, "protobuf"

    def setUp(self):
        super(FormatTest, self).setUp()
        self.rng = random.Random(SEED)
        self.library = host.Plugin(self.plugin)
        self.decoder, self.encoder = self.pair("test.Everything")

    def pair(self, message, **parameters):
        """A decoder and an encoder; `parameters` of the decoder, and those of both."""
        source = {"proto": parameters.pop("proto")} if "proto" in parameters else {"descriptors": OLD if message.startswith("older.") else NEW}
        both = {name: parameters.pop(name) for name in ("framing",) if name in parameters}
        more = {"schemaId": parameters.pop("schemaId", 7)} if both.get("framing") == "confluent" else {}
        return (self.opened("decoder", "protobuf", message=message, **source, **both, **parameters),
                self.opened("encoder", "protobuf", message=message, **source, **both, **more))

    def one(self, data, decoder=None):
        event, = self.decoded(data, decoder)
        return event

    def write(self, event, encoder=None):
        answer = (encoder or self.encoder).row_typed(event)
        self.assertEqual(answer["status"], host.OK, f"{answer['error']}: {str(event)[:300]}")
        return answer["event"]

    def unwritten(self, event, encoder=None):
        answer = (encoder or self.encoder).row_typed(event)
        self.assertEqual(answer["status"], host.FAILED, str(answer["event"])[:300])
        return answer["error"]


class OtherSideTests(ProtobufTest):
    def both_ways(self, make, decoder, encoder, count=COUNT):
        has_maps = 0
        for _ in range(count):
            message = fill(self.rng, make())
            theirs = message.SerializeToString(deterministic=True)
            expected = event_of(message)
            found = self.one(theirs, decoder)
            self.assertTrue(like(found, expected), f"{theirs.hex()}\n{found}\n{expected}")
            ours = self.write(found, encoder)
            again = make()
            again.ParseFromString(ours)
            self.assertEqual(again.SerializeToString(deterministic=True).hex(), theirs.hex(), found)
            # The maps come in the order of the event, which is that of the input.
            if ours != theirs:
                has_maps += 1
                self.assertEqual(sorted(ours), sorted(theirs))
        return has_maps

    def test_messages_at_random_in_both_directions(self):
        self.both_ways(new.Everything, self.decoder, self.encoder)

    def test_each_kind_byte_for_byte(self):
        for name in ["Numbers", "Optionals", "Lists", "Tree", "Choice"]:
            pair = self.pair(f"test.{name}")
            self.assertEqual(self.both_ways(getattr(new, name), *pair, count=COUNT // 4), 0)

    def test_well_known_types(self):
        self.both_ways(new.Known, *self.pair("test.Known"))

    def test_proto2(self):
        self.both_ways(old.Item, *self.pair("older.Item"))

    def test_defaults_and_names(self):
        for defaults in ["implicit", "all", "none"]:
            for names, attribute in [("proto", "name"), ("json", "json_name")]:
                for make, package in [(new.Everything, "test"), (old.Item, "older")]:
                    decoder, encoder = self.pair(f"{package}.{make.DESCRIPTOR.name}", defaults=defaults, names=names)
                    for _ in range(COUNT // 20):
                        message = fill(self.rng, make())
                        expected = event_of(message, defaults, attribute)
                        found = self.one(message.SerializeToString(), decoder)
                        self.assertTrue(like(found, expected), f"{defaults} {names}\n{found}\n{expected}")
                        again = make()
                        again.ParseFromString(self.write(found, encoder))
                        if defaults != "all":
                            self.assertEqual(again.SerializeToString(deterministic=True), message.SerializeToString(deterministic=True))

    def test_concatenated_messages_are_merged(self):
        for _ in range(COUNT // 4):
            first, second = (without_known(fill(self.rng, new.Everything())) for _ in range(2))
            data = first.SerializeToString() + second.SerializeToString()
            merged = new.Everything()
            merged.ParseFromString(data)
            self.assertTrue(like(self.one(data), event_of(merged)), data.hex())

    def test_older_items_are_merged(self):
        decoder, _ = self.pair("older.Item")
        for _ in range(COUNT // 4):
            data = b"".join(fill(self.rng, old.Item()).SerializeToString() for _ in range(3))
            merged = old.Item()
            merged.ParseFromString(data)
            self.assertTrue(like(self.one(data, decoder), event_of(merged)), data.hex())


class MappingTests(ProtobufTest):
    def reading(self, fields, **parameters):
        return self.pair("M", proto=f'syntax = "proto3"; message M {{ {fields} }}', **parameters)

    def test_ends_of_ranges(self):
        decoder, encoder = self.pair("test.Numbers")
        ranges = {"an_int64": (LEAST, MOST), "a_uint64": (0, 2**64 - 1), "an_int32": (-2**31, 2**31 - 1), "a_fixed64": (0, 2**64 - 1),
                  "a_fixed32": (0, 2**32 - 1), "a_uint32": (0, 2**32 - 1), "a_sfixed32": (-2**31, 2**31 - 1), "a_sfixed64": (LEAST, MOST),
                  "a_sint32": (-2**31, 2**31 - 1), "a_sint64": (LEAST, MOST)}
        for name, (least, most) in ranges.items():
            for value in [least, least + 1, 0, 1, most - 1, most]:
                data = self.write({name: value}, encoder)
                self.assertEqual(data, new.Numbers(**{name: value}).SerializeToString())
                self.assertEqual(self.one(data, decoder)[name], value)
                self.assertEqual(self.write({name: str(value)}, encoder), data)
            self.assertIn(f"{name}: the number is be", self.unwritten({name: str(least - 1)}, encoder))
            self.assertIn(f"{name}: the number is beyond those of", self.unwritten({name: str(most + 1)}, encoder))
            self.assertIn(f"{name}: the number is not whole", self.unwritten({name: 0.5}, encoder))
            self.assertEqual(self.write({name: 5.0}, encoder), self.write({name: 5}, encoder))
            self.assertEqual(self.write({name: "5e1"}, encoder), self.write({name: 50}, encoder))
            for bad in ["", "x", "+5", "05", "0x5", " 5", "5 ", "1.5", "NaN", True, [], {}, b"5", {"$timestamp": 5}]:
                self.assertIn(name + ": ", self.unwritten({name: bad}, encoder))

    def test_what_does_not_fit(self):
        decoder, encoder = self.pair("test.Everything")
        for event, reason in [
            ({"nubmers": {}}, "the message test.Everything has no field 'nubmers'"),
            ({"numbers": {"a_double": "x"}}, "numbers.a_double: a text does not fit a double"),
            ({"numbers": {"a_float": 1e39}}, "numbers.a_float: the number is beyond those of a float"),
            ({"numbers": {"a_bool": 1}}, "numbers.a_bool: a whole number does not fit a bool"),
            ({"numbers": {"a_string": 1}}, "numbers.a_string: a whole number does not fit a string"),
            ({"numbers": {"some_bytes": "§"}}, "numbers.some_bytes: the text is not base64, and the field has bytes"),
            ({"numbers": {"a_color": "GREEN"}}, "numbers.a_color: the enum test.Color has no value 'GREEN'"),
            ({"numbers": {"a_color": 2**31}}, "numbers.a_color: the enum test.Color has no value with this number"),
            ({"numbers": []}, "numbers: a list does not fit a message, which needs an object"),
            ({"more": [{}, {"lists": {"numbers": [{}, {"an_int32": 2**31}]}}]}, "more[1].lists.numbers[1].an_int32: the number is beyond those of int32"),
            ({"lists": {"strings": "a"}}, "lists.strings: a text does not fit a repeated field, which needs a list"),
            ({"lists": {"strings": ["a", None]}}, "lists.strings[1]: null cannot be an element of a repeated field"),
            ({"maps": {"by_text": {"a": None}}}, "maps.by_text.a: null cannot be a value of a map"),
            ({"maps": {"by_text": {"a": "b"}}}, "maps.by_text.a: the text is not a whole number"),
            ({"maps": {"by_number": {"-1": "b"}}}, "maps.by_number: the number is below 0, which uint64 cannot have"),
            ({"maps": {"by_number": {"a": "b"}}}, "maps.by_number: the key 'a' is not a whole number"),
            ({"maps": {"by_bool": {"yes": 1}}}, "maps.by_bool: the key 'yes' is neither true nor false"),
            ({"choice": {"number": 1, "text": "a"}}, "choice: only one of 'number' and 'text', of the oneof 'what', can be there"),
            ({"known": {"time": 5}}, "known.time: a whole number does not fit a Timestamp"),
            ({"known": {"time": "yesterday"}}, "known.time: the text is not a time of RFC 3339"),
            ({"known": {"duration": "5"}}, "known.duration: the text is not a duration such as 1.5s"),
            ({"known": {"object": {"a": {"b": 2**53 + 1}}}}, "known.object.a.b: the whole number is not exact as a double, which numbers of a Value are"),
            ({"known": {"value": [math.nan]}}, "known.value: a Value cannot have NaN or an infinite number"),
            ({"known": {"any": {"a": 1}}}, "known.any: an Any needs the member '@type', a text"),
            ({"known": {"any": {"@type": "x/test.Numbers", "b": 1}}}, "known.any: the message test.Numbers has no field 'b'"),
            ({"known": {"any": {"@type": "x/unknown", "value": 1}}}, "known.any: the descriptors have no message for 'x/unknown', so 'value' must be bytes"),
            ({"known": {"an_int32": 2**40}}, "known.an_int32: the number is beyond those of int32"),
            ({"numbers": {"a_double": 1, "aDouble": 2}}, "numbers.a_double: the object has the field twice"),
            ([1], "the event is a list; a message is an object"),
        ]:
            self.assertEqual(self.unwritten(event, encoder), reason)
        self.assertEqual(self.one(self.write({}, encoder), decoder), {"more": []})

    def test_members_that_are_ignored(self):
        encoder = self.opened("encoder", "protobuf", message="test.Tree", descriptors=NEW, unknown="ignore")
        self.assertEqual(self.write({"name": "a", "other": 1, "children": [{"more": 2}]}, encoder), new.Tree(name="a", children=[new.Tree()]).SerializeToString())

    def test_json_names_and_null(self):
        _, encoder = self.pair("test.Everything")
        data = new.Everything(inner=new.Everything.Inner(id=5, with_json_name="x")).SerializeToString()
        for event in [{"inner": {"id": 5, "@named": "x"}}, {"inner": {"id": 5, "with_json_name": "x"}, "tree": None, "more": None}]:
            self.assertEqual(self.write(event, encoder), data)

    def test_base64(self):
        _, encoder = self.reading("bytes b = 1;")
        for count in range(8):
            data = bytes(range(250, 250 + min(count, 6))) + b"\xff" * max(0, count - 6)
            for form in [base64.b64encode(data), base64.urlsafe_b64encode(data), base64.b64encode(data).rstrip(b"=")]:
                self.assertEqual(self.write({"b": form.decode()}, encoder), tagged(1, data) if data else b"")
        for bad in ["a", "ab=", "=", "a===", "ab==c", "a b=", "abcde"]:
            self.assertIn("not base64", self.unwritten({"b": bad}, encoder))

    def test_numbers_as_texts(self):
        _, encoder = self.pair("test.Numbers")
        for shown, value in [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1.5", 1.5), ("2e3", 2000.0)]:
            self.assertEqual(self.write({"a_double": shown, "a_float": shown}, encoder), new.Numbers(a_double=value, a_float=value).SerializeToString())

    def test_times(self):
        decoder, encoder = self.pair("test.Known")
        for shown, seconds, nanoseconds in [("2020-01-02T03:04:05Z", 1577934245, 0), ("0001-01-01T00:00:00Z", -62135596800, 0),
                                            ("9999-12-31T23:59:59.999999999Z", 253402300799, 999999999), ("2020-01-02T03:04:05.5+01:30", 1577928845, 500000000)]:
            message = new.Known()
            message.time.seconds, message.time.nanos = seconds, nanoseconds
            self.assertEqual(self.write({"time": shown}, encoder), message.SerializeToString())
        for seconds, nanoseconds in [(-62135596801, 0), (253402300800, 0), (0, -1), (0, 10**9)]:
            message = new.Known()
            message.time.seconds, message.time.nanos = seconds, nanoseconds
            self.assertIn("time, at byte 2: the time ", self.refused(message.SerializeToString(), decoder))
        for shown, seconds, nanoseconds in [("1s", 1, 0), ("-0.5s", 0, -500000000), ("315576000000s", 315576000000, 0), ("0.000000001s", 0, 1)]:
            message = new.Known()
            message.duration.SetInParent()
            message.duration.seconds, message.duration.nanos = seconds, nanoseconds
            self.assertEqual(self.write({"duration": shown}, encoder), message.SerializeToString())
        message = new.Known()
        message.duration.seconds, message.duration.nanos = 1, -1
        self.assertIn("duration, at byte 2: the duration has 1 s and -1 ns", self.refused(message.SerializeToString(), decoder))

    def test_times_within_texts(self):
        _, encoder = self.reading("string s = 1; google.protobuf.Value v = 2; } import 'google/protobuf/struct.proto'; message N {")
        self.assertEqual(self.write({"s": {"$duration": 5}, "v": [b"\xff"]}, encoder)[:3], tagged(1, b"5"))

    def test_enums(self):
        decoder, encoder = self.pair("test.Lists")
        data = new.Lists(colors=[0, 1, 2000000000, -5, 5, -1]).SerializeToString()
        self.assertEqual(self.one(data, decoder)["colors"], ["NONE", "RED", "FAR", "BELOW", 5, -1])
        self.assertEqual(self.write({"colors": ["NONE", "CRIMSON", "FAR", -5, 5, -1]}, encoder), data)

    def test_closed_enums(self):
        decoder, encoder = self.pair("older.Item")
        data = tagged(1, b"i") + bytes([9 << 3, 1, 9 << 3, 5, 9 << 3, 2, 5 << 3, 9])
        self.assertEqual(self.one(data, decoder), {"id": "i", "levels": ["LOW", "HIGH"], "numbers": [], "packed_numbers": [], "part": [], "by_name": {},
                                                   "[older.labels]": []})
        self.assertIn("level: the enum older.Level has no value with this number", self.unwritten({"id": "i", "level": 9}, encoder))

    def test_required_fields(self):
        decoder, encoder = self.pair("older.Item")
        self.assertEqual(self.refused(b"", decoder), "id: the field is required, and the message does not have it")
        self.assertEqual(self.refused(tagged(1, b"a") + tagged(16, b""), decoder), "child.id: the field is required, and the message does not have it")
        self.assertEqual(self.unwritten({"id": "a", "position": {"y": 1}}, encoder), "position.x: the field is required, and the event does not have it")

    def test_extensions(self):
        decoder, encoder = self.pair("older.Item", defaults="none")
        item = old.Item(id="a")
        item.Extensions[old.priority] = 5
        item.Extensions[old.Note.attached].text = "hello"
        event = {"id": "a", "[older.priority]": 5, "[older.Note.attached]": {"text": "hello"}}
        self.assertEqual(self.one(item.SerializeToString(), decoder), event)
        self.assertEqual(self.write(event, encoder), item.SerializeToString())

    def test_unknown_fields_are_ignored(self):
        decoder, _ = self.pair("test.Tree")
        unknown = b"\x28\x05" + b"\x31" + bytes(8) + tagged(7, b"xyz") + b"\x43\x0b\x0c\x08\x01\x44" + b"\x4d" + bytes(4) + varint(536870911 << 3) + b"\x01"
        self.assertEqual(self.one(unknown + tagged(1, b"a") + unknown, decoder), {"name": "a", "children": [], "weight": 0})
        # Another wire type than the schema's.
        self.assertEqual(self.one(b"\x08\x05" + tagged(4, b"\x01"), decoder), {"name": "", "children": [], "weight": 0})

    def test_the_last_value_counts(self):
        decoder, _ = self.pair("test.Choice")
        self.assertEqual(self.one(b"\x08\x05" + tagged(2, b"a") + b"\x08\x06", decoder), {"number": 6})
        self.assertEqual(self.one(tagged(3, tagged(1, b"a")) + b"\x08\x05" + tagged(3, b"\x20\x01"), decoder),
                         {"tree": {"name": "", "children": [], "weight": 1}})
        maps, _ = self.pair("test.Maps", defaults="none")
        entry = lambda key, value: tagged(1, tagged(1, key) + bytes([16, value]))  # noqa: E731
        many = b"".join(entry(b"%d" % (i % 50), i % 100) for i in range(1000))
        self.assertEqual(self.one(entry(b"a", 1) + entry(b"b", 2) + entry(b"a", 3), maps), {"by_text": {"b": 2, "a": 3}})
        self.assertEqual(self.one(many, maps)["by_text"], {str(i): 50 + i for i in range(50)})
        self.assertEqual(self.one(tagged(1, b"") + tagged(2, b"") + tagged(3, b""), maps), {"by_text": {"": 0}, "by_number": {"0": ""}, "by_sint": {"0": {}}})

    def test_packed_and_not(self):
        decoder, _ = self.pair("test.Lists", defaults="none")
        self.assertEqual(self.one(b"\x18\x01\x1a\x02\x02\x03\x18\x04", decoder), {"int64s": [1, 2, 3, 4]})
        self.assertEqual(self.one(tagged(10, b"\x01\x02") + tagged(11, b"\1\0\0\0\2\0\0\0"), decoder), {"sint64s": [-1, 1], "fixed32s": [1, 2]})
        self.assertEqual(self.one(b"\x18\x01" + tagged(7, b"a") + b"\x18\x02" + tagged(7, b"b") + b"\x18\x03", decoder),
                         {"int64s": [1, 2, 3], "strings": ["a", "b"]})


class FramingTests(ProtobufTest):
    def test_messages_with_their_lengths(self):
        decoder, encoder = self.pair("test.Tree", framing="delimited", defaults="none")
        trees = [{"name": "a"}, {}, {"name": "b" * 300, "weight": 5}]
        data = b"".join(self.write(tree, encoder) for tree in trees)
        self.assertEqual(data, b"".join(varint(len(m)) + m for m in (new.Tree(**tree).SerializeToString() for tree in trees)))
        self.assertEqual(self.decoded(data, decoder), trees)
        self.assertEqual(self.decoded(b"", decoder), [])
        self.assertEqual(self.refused(data[:-1], decoder), "at byte 5: a value of 305 bytes begins, and 304 are left")

    def test_confluent(self):
        for name, path in [("test.Numbers", "00"), ("test.Tree", "020a"), ("test.Everything.Inner", "040e02" if False else None), ("test.Everything.Inner.Deeper", None)]:
            indexes, at = [], None
            parts = name.split(".")[1:]
            container = new.DESCRIPTOR.message_types_by_name
            for part in parts:
                at = container[part]
                siblings = list(new.DESCRIPTOR.message_types_by_name.values()) if at.containing_type is None else list(at.containing_type.nested_types)
                indexes.append(siblings.index(at))
                container = at.nested_types_by_name
            encoded = b"\0" if indexes == [0] else varint(len(indexes) * 2) + b"".join(varint(i * 2) for i in indexes)
            if path:
                self.assertEqual(encoded.hex() if indexes == [0] else encoded[:1].hex(), path[:2])
            decoder, encoder = self.pair(name, framing="confluent", schemaId=0x01020304, defaults="none")
            data = self.write({}, encoder)
            self.assertEqual(data, bytes.fromhex("0001020304") + encoded)
            self.assertEqual(self.decoded(data, decoder), [{}])
        self.assertIn("the indexes are those of another message than 'test.Everything.Inner.Deeper'", self.refused(bytes(6), decoder))
        self.assertIn("the first byte is 1, and not 0", self.refused(b"\x01" + data[1:], decoder))
        self.assertIn("too short", self.refused(bytes(5), decoder))
        self.assertIn("the indexes are", self.refused(bytes(5) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", decoder))


class OperatorTests(ProtobufTest):
    def test_bytes_of_an_event(self):
        operator = self.opened("operator", "protobufDecode", message="test.Tree", descriptors=NEW, framing="confluent", into="tree", defaults="none")
        encoder = self.pair("test.Tree", framing="confluent")[1]
        event = {"key": "k", "value": self.write({"name": "a"}, encoder)}
        self.assertEqual(operator.row_typed(event, event["value"])["event"], {**event, "tree": {"name": "a"}})
        self.assertEqual(operator.row_typed({"key": "k"}, None)["event"], {"key": "k"})
        self.assertIn("the first byte is 1", operator.row_typed(event, b"\1" * 9)["error"])
        self.assertEqual(operator.row_typed(event, "text")["error"], "the value of 'bytes' is not bytes")


class ParameterTests(ProtobufTest):
    def problem(self, kind="decoder", **parameters):
        with self.assertRaises(host.Refused) as refused:
            self.library.open(kind, "protobuf", **parameters)
        return refused.exception.at, str(refused.exception)

    def test_what_is_refused(self):
        simple = 'syntax = "proto3"; package p; message M { int32 a = 1; }'
        self.assertEqual(self.problem(message="M"), ("", "needs either 'descriptors' or 'proto'"))
        self.assertEqual(self.problem(message="M", proto=simple, descriptors=NEW)[0], "proto")
        self.assertEqual(self.problem(message="M", proto=simple), ("message", "there is no message 'M'; did you mean 'p.M'?"))
        self.assertEqual(self.problem(message="p.N", proto=simple), ("message", "there is no message 'p.N'; there are p.M"))
        self.assertEqual(self.problem(message="M", proto="message M { int32 = 1; }"), ("proto", 'line 1, column 13: Expected "required", "optional", or "repeated"'))
        self.assertEqual(self.problem(message="M", proto='message M { optional N n = 1; }')[1], 'proto: M.n: "N" is not defined')
        self.assertEqual(self.problem(message="M", proto='import "other.proto";')[0], "proto")
        self.assertEqual(self.problem(message="M", descriptors="/nowhere"), ("descriptors", "'/nowhere' cannot be read: No such file or directory"))
        self.assertEqual(self.problem(message="M", descriptors="/tmp"), ("descriptors", "'/tmp' is not a regular file"))
        for content, reason in [(b"", "the descriptor set is empty"), (b"\xff\xff", "is not a descriptor set"), (b"syntax", "is not a descriptor set")]:
            with open(self.path("bad"), "wb") as file:
                file.write(content)
            self.assertIn(reason, self.problem(message="M", descriptors=self.path("bad"))[1])
        self.assertEqual(self.problem(message="google.protobuf.Timestamp", descriptors=NEW)[1],
                         "'google.protobuf.Timestamp' is not an object in events; name a message that has it")
        self.assertEqual(self.problem("encoder", message="test.Tree", descriptors=NEW, framing="confluent")[0], "schemaId")

    def test_a_set_without_its_imports(self):
        for name, text_ in [("inner.proto", 'syntax = "proto3"; message I { int32 a = 1; }'), ("outer.proto", 'syntax = "proto3"; import "inner.proto"; message O { I i = 1; }')]:
            with open(self.path(name), "w") as file:
                file.write(text_)
        subprocess.run(["protoc", "-I" + self.directory, "--descriptor_set_out=" + self.path("set"), "outer.proto"], check=True)
        self.assertEqual(self.problem(message="O", descriptors=self.path("set"))[1],
                         "'outer.proto' imports 'inner.proto', which the descriptor set lacks: protoc needs --include_imports")
        with open(self.path("known.proto"), "w") as file:
            file.write('syntax = "proto3"; import "google/protobuf/timestamp.proto"; message K { google.protobuf.Timestamp t = 1; }')
        subprocess.run(["protoc", "-I" + self.directory, "--descriptor_set_out=" + self.path("set"), "known.proto"], check=True)
        decoder = self.opened("decoder", "protobuf", message="K", descriptors=self.path("set"))
        self.assertEqual(self.decoded(b"\x0a\x02\x08\x01", decoder), [{"t": {"$timestamp": 10**9}}])


class HostileTests(ProtobufTest):
    def check(self, data, decoder, encoder):
        """Whatever the input is, there is an answer; what is read can be written and read again."""
        answer = decoder.row_of_bytes(data)
        if answer["status"] != host.OK:
            self.assertEqual(answer["status"], host.FAILED)
            self.assertTrue(answer["error"], data.hex())
            return 0
        event, = answer["event"]
        again = encoder.row_typed(event)
        if again["status"] != host.OK:
            # What a message can have and JSON's mapping cannot.
            self.assertRegex(again["error"], "a Value cannot have NaN|an Any of|value' must be bytes|an Any needs|needs the member", data.hex())
            return 1
        self.assertTrue(like(self.decoded(again["event"], decoder), [event]), data.hex())
        return 1

    def test_every_truncation(self):
        for make, package in [(new.Everything, "test"), (old.Item, "older")]:
            decoder, _ = self.pair(f"{package}.{make.DESCRIPTOR.name}")
            for _ in range(8):
                data = fill(self.rng, make()).SerializeToString()[:1500]
                for end in range(len(data)):
                    answer = decoder.row_of_bytes(data[:end])
                    if not is_read(make, data[:end]):
                        self.assertEqual(answer["status"], host.FAILED, data[:end].hex())

    def test_mutated_messages(self):
        """Read and refused as the other side does, besides what only the mapping refuses."""
        accepted = checked = only_here = 0
        kinds = [(new, name) for name in ("Everything", "Numbers", "Lists", "Maps", "Choice", "Known", "Tree")] + [(old, "Item")] * 3
        for module, name in kinds:
            make = getattr(module, name)
            decoder, encoder = self.pair(f"{module.DESCRIPTOR.package}.{name}")
            for _ in range(MUTATIONS // len(kinds)):
                data = bytearray(fill(self.rng, make(), depth=2).SerializeToString())
                for _ in range(self.rng.randint(1, 3)):
                    at, count = self.rng.randrange(len(data) + 1), self.rng.randint(0, 3)
                    data[at:at + count] = self.rng.randbytes(count if self.rng.random() < 0.7 else self.rng.randint(0, 3))
                data = bytes(data)
                was_read, is_good = self.check(data, decoder, encoder), is_read(make, data)
                if was_read and not is_good:
                    self.fail(f"read here only: {data.hex()}")
                if is_good and not was_read:
                    only_here += 1
                    self.assertRegex(self.refused(data, decoder), r"the time |the duration |no form in camelCase|any|^at byte \d+: (a group ends that has not begun|a field has the number 0)|more than five bytes" + ("|the string is not UTF-8" if module is old else ""), data.hex())
                accepted += was_read
                checked += 1
        print(f"\n    {checked} mutated messages, {accepted} read, {only_here} refused here only", flush=True)
        self.assertGreater(accepted, checked // 10)

    def test_bytes_at_random(self):
        tree = self.pair("test.Tree")
        for _ in range(5000):
            self.check(self.rng.randbytes(self.rng.randint(0, 40)), *tree)

    def test_deep_nesting(self):
        decoder, encoder = self.pair("test.Tree", defaults="none")

        def deep(levels):
            data = b""
            for _ in range(levels):
                data = tagged(3, data)
            return data

        event = self.one(deep(100), decoder)
        self.assertEqual(self.write(event, encoder), deep(100))
        self.assertIn("more than 100 messages are nested", self.refused(deep(101), decoder))
        self.assertIn("more than 100 messages are nested", self.unwritten({"next": event}, encoder))
        self.assertIn("more than 100 messages are nested", self.refused(deep(5000), decoder))
        self.assertIn("more than 100 messages are nested", self.refused(b"\x6b" * 1_000_000, decoder))
        known, known_encoder = self.pair("test.Known")
        value = "x"
        for _ in range(60):
            value = [value]
        self.assertIn("more than 100 messages are nested", self.unwritten({"value": value}, known_encoder))
        any_ = b""
        for _ in range(200):
            any_ = tagged(1, b"x/google.protobuf.Any") + tagged(2, any_)
        self.assertIn("more than 100 messages are nested", self.refused(tagged(16, any_), known))

    def test_claimed_lengths(self):
        decoder, _ = self.pair("test.Lists")
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        for length in [1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]:
            for number_ in [3, 7, 8, 12, 99]:
                self.assertIn("begins, and 0 are left", self.refused(varint(number_ << 3 | 2) + varint(length), decoder))
        for bad in [b"\x80" * 10, b"\x18" + b"\xff" * 10 + b"\x01", b"\x18" + b"\x80" * 9, b"\x1a\x01\x80", b"\x0a\x04abcd", b"\x5a\x03abc", b"\x09abc", b"\x5dabc"]:
            self.refused(bad, decoder)
        for bad, reason in [(b"\0\0", "the number 0"), (b"\x0e\0", "the wire type 6"), (b"\x0f", "the wire type 7"), (b"\x0c", "a group ends that has not begun"),
                            (b"\x9b\x06", "the group 99 does not end"), (b"\x9b\x06\x0c", "the group 1 ends, and 99 has begun"),
                            (b"\x80\x80\x80\x80\x10\0", "the number 0"), (b"\x88\x80\x80\x80\x80\0", "more than five bytes")]:
            self.assertIn(reason, self.refused(bad, decoder))
        self.assertLess(time.process_time() - start, 5)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 50_000, "KiB")

    def test_utf8(self):
        decoder, _ = self.pair("test.Everything")
        for bad in [b"\xff", b"ab\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]:
            data = tagged(7, tagged(2, b"") + tagged(2, tagged(1, bad)))
            self.assertEqual(self.refused(data, decoder), "tree.children[1].name, at byte 8: the string is not UTF-8")
            self.assertIn("the string is not UTF-8", self.refused(tagged(4, tagged(1, tagged(1, bad))), decoder))

    def test_packed_bombs(self):
        """A byte of the input takes no more than some values' memory, and no time by its square."""
        maps, _ = self.pair("test.Maps", defaults="none")
        lists, _ = self.pair("test.Lists", defaults="none")
        wide, _ = self.pair("test.Wide")
        bare, _ = self.pair("test.Wide", defaults="none")
        tree, _ = self.pair("test.Tree", defaults="none")
        start = time.process_time()
        packed = tagged(3, b"\x01" * 50_000)
        self.assertEqual(len(self.one(packed, lists)["int64s"]), 50_000)
        self.assertEqual(len(self.one(b"\x1a\x01\x01\x3a\x01a" * 20_000, lists)["int64s"]), 20_000)
        self.assertEqual(self.one(tagged(3, b"") * 100_000 + tagged(3, tagged(1, b"x")), tree), {"next": {"name": "x"}})
        self.assertEqual(self.one(tagged(1, tagged(1, b"k")) * 50_000, maps), {"by_text": {"k": 0}})
        self.assertIn("too many absent fields", self.refused(tagged(1, b"") * 50_000, wide))
        self.assertEqual(len(self.one(tagged(1, b"") * 30_000, bare)["parts"]), 30_000)
        self.assertLess(time.process_time() - start, 20 if os.environ.get("SANITIZE") else 5)

    def test_repeated_parts_at_each_level(self):
        decoder, _ = self.pair("test.Tree", defaults="none")
        data = tagged(1, b"x" * 20_000)
        for _ in range(90):
            data = tagged(3, b"") + tagged(3, data)
        start = time.process_time()
        event = self.one(data, decoder)
        for _ in range(90):
            event = event["next"]
        self.assertEqual(len(event["name"]), 20_000)
        self.assertLess(time.process_time() - start, 5)


@unittest.skipUnless(RXD, "set RXD to the program")
class InRxdTests(ProtobufTest):
    def test_events_through_files(self):
        events = [{"name": f"n{i}", "weight": i - 50, "children": [{"name": "c", "weight": 0, "children": []}] * (i % 3)} for i in range(200)]
        with open(self.path("events.json"), "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        encoded, = self.run_rxd(f"""
plugins: {{ protobuf: PLUGIN }}
sources: {{ in: {{ file: {{ path: events.json, decode: json }} }} }}
sinks: {{ out: {{ from: in, file: {{ path: encoded, encode: {{ protobuf: {{ descriptors: {NEW}, message: test.Tree, framing: delimited }} }} }} }} }}
""", "encoded")
        found, rest = [], encoded
        while rest:
            length, used = rest[0], 1
            if length >= 0x80:
                length, used = length & 0x7f | rest[1] << 7, 2
            found.append(new.Tree.FromString(rest[used:used + length]))
            rest = rest[used + length:]
        self.assertEqual([event_of(tree) for tree in found], [{name: event[name] for name in ("name", "children", "weight")} for event in events])
        lines, = self.run_rxd(f"""
plugins: {{ protobuf: PLUGIN }}
sources: {{ in: {{ file: {{ path: encoded, decode: {{ protobuf: {{ descriptors: {NEW}, message: test.Tree, framing: delimited }} }} }} }} }}
sinks: {{ out: {{ from: in, file: {{ path: lines, encode: ndjson }} }} }}
""", "lines")
        self.assertEqual([json.loads(line) for line in lines.splitlines()], events)

    def test_a_wrong_parameter_has_its_place(self):
        with open(self.path("pipeline.yaml"), "w") as file:
            file.write(f"""
plugins: {{ protobuf: {self.plugin} }}
sources: {{ in: {{ file: {{ path: in, decode: {{ protobuf: {{ descriptors: /nowhere, message: test.Tree }} }} }} }} }}
sinks: {{ out: {{ from: in, discard: {{}} }} }}
""")
        open(self.path("in"), "w").close()
        run = subprocess.run([RXD, "run", self.path("pipeline.yaml")], cwd=self.directory, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("'/nowhere' cannot be read: No such file or directory", run.stderr)

    def test_what_is_refused_goes_to_the_errors_output(self):
        with open(self.path("in"), "wb") as file:
            file.write(tagged(1, b"\xff"))
        errors, = self.run_rxd(f"""
plugins: {{ protobuf: PLUGIN }}
sources: {{ in: {{ file: {{ path: in, decode: {{ protobuf: {{ descriptors: {NEW}, message: test.Tree }} }} }} }} }}
sinks:
  out: {{ from: in, stdout: {{ encode: ndjson }} }}
  errors: {{ from: in.errors, file: {{ path: errors, encode: ndjson }} }}
""", "errors")
        self.assertEqual(json.loads(errors)["error"], "name, at byte 2: the string is not UTF-8")

    def test_the_example(self):
        pipeline = os.path.join(ROOT, "pipelines", "orders.yaml")
        run = subprocess.run([RXD, "test", pipeline], cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        given = [orders.Order(id=2**64 - 1 - i, state=i % 4, items=[orders.Item(name="tea", count=i, price=2.5), orders.Item(name="cup", price=4)],
                              labels={"channel": "web"}) for i in range(100)]
        for order in given:
            order.placed.FromJsonString("2026-11-29T12:00:00.5Z")
        data = b"".join(varint(len(one)) + one for one in (order.SerializeToString() for order in given))
        with open(self.path("orders"), "wb") as file:
            file.write(data)
        variables = {**os.environ, "ORDERS": self.path("orders"), "INVOICES": self.path("invoices"), "REFUSED": self.path("refused")}
        run = subprocess.run([RXD, "run", pipeline, "--once"], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        with open(self.path("invoices"), "rb") as file:
            rest = file.read()
        found = []
        while rest:
            found.append(orders.Invoice.FromString(rest[1:1 + rest[0]]))
            rest = rest[1 + rest[0]:]
        self.assertEqual([(one.order, one.sum) for one in found], [(2**64 - 1 - i, 2.5 * i) for i in range(1, 100, 4)])
        self.assertEqual(found[1].placed.ToJsonString(), "2026-11-29T12:00:00.500Z")


if __name__ == "__main__":
    unittest.main()
