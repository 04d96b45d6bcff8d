import gc
import weakref

from rlpyt.utils.quick_args import arguments_of, save__init__args, takes


class Base:
    setting = "class attribute"

    def __init__(self, a, b=2, setting=None):
        save__init__args(locals())


class Child(Base):
    def __init__(self, a, c=3, *args, b=20, **kwargs):
        save__init__args(locals())
        super().__init__(a="of the base", b="of the base", **kwargs)


def test_arguments_become_attributes():
    obj = Base(1)
    assert vars(obj) == {"a": 1, "b": 2, "setting": None}


def test_a_class_attribute_of_the_same_name_does_not_count_as_set():
    assert Base(1, setting="mine").setting == "mine"


def test_the_value_of_the_subclass_wins_over_that_of_its_base():
    obj = Child(1)
    assert (obj.a, obj.b, obj.c) == (1, 20, 3)


def test_collected_arguments_are_not_saved():
    assert set(vars(Child(1, 3, 4, setting=5))) == {"a", "b", "c", "setting"}


def test_local_variables_are_not_saved_unless_an_init_names_them():
    class Grandchild(Child):
        def __init__(self):
            temporary, c = "forget", "named by Child"
            save__init__args(locals())

    assert vars(Grandchild()) == {"c": "named by Child"}


def test_underscore_overwrite():
    class Underscored:
        def __init__(self, a):
            self._a = "before"
            save__init__args(locals(), underscore=True)
            self.kept = self._a
            save__init__args(locals(), underscore=True, overwrite=True)

    obj = Underscored(1)
    assert obj.kept == "before" and obj._a == 1 and not hasattr(obj, "a")


def test_subclass_only_saves_what_the_running_init_names():
    class Only(Base):
        def __init__(self, c, a=0):
            b = "local, and named by the base"  # noqa: F841
            save__init__args(locals(), subclass_only=True)
            super().__init__(a, b=5)

    assert Only(3).b == 5

    class Sub(Only):
        def __init__(self):
            super().__init__(c=4, a=1)

    assert vars(Sub()) == {"c": 4, "a": 1, "b": 5, "setting": None}


def test_a_class_without_an_init_of_its_own_is_no_trouble():
    class Plain(Base):
        pass

    assert Plain(1).a == 1


def test_arguments_are_those_of_base_classes_too_as_far_as_kwargs_are_handed_on():
    class Mixin:
        def __init__(self, *args, mixed=1, **kwargs):
            super().__init__(*args, **kwargs)

    class Closed(Child):
        def __init__(self, a, d):
            super().__init__(a, d)

    class Mixed(Mixin, Child):
        pass

    assert set(arguments_of(Base)) == {"a", "b", "setting"}
    assert set(arguments_of(Child)) == {"a", "b", "c", "setting"}
    assert set(arguments_of(Mixed)) == {"mixed", "a", "b", "c", "setting"}
    assert set(arguments_of(Closed)) == {"a", "d"}
    assert arguments_of(Child)["b"].default == 20, "of the class itself, not of its base"
    assert takes(Child, "setting") and not takes(Child, "seting")


def test_arguments_are_in_the_order_of_positional_calls():
    class Base:
        def __init__(self, a=1, b=2, c=3, d=4):
            pass

    class Behind(Base):
        def __init__(self, new=0, c=30, **kwargs):
            super().__init__(c=c, **kwargs)

    class InPlace(Base):
        def __init__(self, *, new=0, b=20, newer=0, d=40, **kwargs):
            super().__init__(b=b, d=d, **kwargs)

    assert list(arguments_of(Behind)) == ["new", "c", "a", "b", "d"]
    assert list(arguments_of(InPlace)) == ["a", "new", "b", "c", "newer", "d"]
    assert [arguments_of(InPlace)[name].default for name in "abcd"] == [1, 20, 3, 40]


def test_a_property_that_has_been_assigned_stays_too():
    class WithProperty(Base):
        size = property(lambda self: self._size, lambda self, size: setattr(self, "_size", size))

        def __init__(self, size):
            save__init__args(locals())

    class Sub(WithProperty):
        def __init__(self, size):
            save__init__args(locals())
            super().__init__(3)

    assert (WithProperty(2).size, Sub(5).size) == (2, 5)


def test_where_kwargs_go_who_knows_where_anything_is_taken():
    class Open:
        def __init__(self, a, **kwargs):
            self.settings = kwargs

    def function(a, **settings):
        return settings

    assert takes(Open, "b") and takes(function, "b")
    assert not takes(lambda a: a, "b")
    assert not takes(object, "b")


def test_the_arguments_of_a_users_class_are_those_that_it_has_now():
    class Mine(Base):
        def __init__(self, mine=1, **kwargs):
            super().__init__(**kwargs)

    def replaced(self, other=3):
        pass

    assert arguments_of(Mine)["mine"].default == 1
    Mine.__init__.__defaults__ = (2,)
    assert arguments_of(Mine)["mine"].default == 2
    Mine.__init__ = replaced
    assert list(arguments_of(Mine)) == ["other"]


def test_a_users_class_is_not_kept_alive_by_a_look_at_its_arguments():
    known = []

    class Mine(Base):
        def __init__(self, others=known, **kwargs):
            super().__init__(**kwargs)

    known.append(Mine)  # So the default of an argument leads to the constructor.
    arguments_of(Mine)
    there = weakref.ref(Mine)
    del Mine, known
    gc.collect()
    assert there() is None
