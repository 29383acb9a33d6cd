"""JDBC addresses are understood, or refused with what is understood; passwords are not shown."""

import pytest

from ottla.connect.databases.address import parse_address
from ottla.connect.failures import ConfigInvalid


def test_addresses_give_host_port_and_database():
    assert str(parse_address("jdbc:postgresql://db:6543/shop?sslmode=require")) == "db:6543/shop"
    assert str(parse_address("jdbc:mariadb://db/shop")) == "db:3306/shop"
    assert parse_address("jdbc:sqlite:/a/b.db").database == "/a/b.db"
    found = parse_address("jdbc:postgresql://[::1]/shop?user=u&password=very-secret")
    assert (found.host, found.user, found.password) == ("::1", "u", "very-secret")
    assert "very-secret" not in repr(found)


@pytest.mark.parametrize(
    "url",
    ["", "jdbc:", "jdbc:oracle:thin:@x", "jdbc:postgresql:shop", "jdbc:mysql://a:99999/x", "jdbc:sqlite:"],
)
def test_other_addresses_are_refused(url):
    with pytest.raises(ConfigInvalid, match=r"connection\.url"):
        parse_address(url)
