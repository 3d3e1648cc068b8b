# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root acts in a user's directory as that user, and as root nowhere that another account can change."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import owners, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import digests, model_files

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another account")

#: Users that have no account.
ONE, OTHER = 4711, 4712


@pytest.fixture
def place():
    """root's directory that everybody can traverse, with a user's home in it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    for name, uid in (("home", ONE), ("theirs", OTHER), ("etc", 0)):
        (folder / name).mkdir()
        os.chown(folder / name, uid, uid)
    yield folder
    shutil.rmtree(folder)


def link(path, target, uid=ONE):
    path.symlink_to(target)
    os.chown(path, uid, uid, follow_symlinks=False)


def directory(path, uid=ONE):
    path.mkdir()
    os.chown(path, uid, uid)


def refused(path):
    with pytest.raises(ClusterError) as caught:
        owners.owner_of(str(path))
    assert caught.value.remedy
    return caught.value


def test_the_owner_is_that_of_the_directory_or_the_nearest_above(place):
    directory(place / "home/.cache")
    for path in ("home", "home/.cache", "home/.cache/huggingface", "home/new/and/deeper"):
        assert owners.owner_of(str(place / path)) == (ONE, ONE)
    assert owners.owner_of(str(place / "etc/new")) == (0, 0)


def test_a_users_link_within_their_own_and_a_link_of_roots_are_followed(place):
    directory(place / "home/disk")
    link(place / "home/cache", "../home/disk")
    link(place / "data", place / "home/disk", 0)
    assert owners.owner_of(str(place / "home/cache/hub")) == owners.owner_of(str(place / "data")) == (ONE, ONE)


@pytest.mark.parametrize("path", ["home/cache", "home/cache/hub", "home/cache/../etc/hub"])
@pytest.mark.parametrize("target", ["etc", "theirs"])
def test_a_users_link_to_a_foreign_directory_is_refused_without_a_chown_of_the_target(place, target, path):
    link(place / "home/cache", f"../{target}")
    error = refused(place / path)
    assert f"{place}/home/cache belongs to user {ONE}" in str(error) and "chown" not in error.remedy


def test_a_link_that_leads_nowhere_is_refused_at_every_level(place):
    link(place / "home/cache", place / "etc/ssh.service.d")
    link(place / "home/over", "cache")
    for path in ("home/cache", "home/cache/hub", "home/over/hub"):
        assert refused(place / path).remedy.startswith(f"Mount or make {place}/etc/ssh.service.d, or remove the link: rm {place}/home/cache")
    link(place / "home/round", "round")
    assert "circular" in refused(place / "home/round").remedy


def test_roots_directory_below_a_users_is_named_with_the_command_that_fixes_it(place):
    directory(place / "home/hub", 0)
    link(place / "home/cache", place / "home")
    for path in ("home/hub/new", "home/cache/hub"):
        error = refused(place / path)
        assert error.remedy == f"sudo chown -R --reference={place}/home {place}/home/hub"


def test_root_follows_no_path_that_other_users_can_change(place):
    (place / "etc").chmod(0o777)
    (place / "etc/cache").mkdir()
    assert f"sudo chmod go-w {place}/etc" in refused(place / "etc/cache").remedy
    # The sticky bit protects an existing entry. A missing entry can be created by any user first.
    (place / "etc").chmod(0o1777)
    assert owners.owner_of(str(place / "etc/cache")) == (0, 0)
    assert refused(place / "etc/new").reason == "owner"
    (place / "etc").chmod(0o775)
    os.chown(place / "etc", 0, 27)
    assert refused(place / "etc/cache").reason == "owner"
    # For the user itself it does not matter.
    os.chown(place / "etc/cache", ONE, ONE)
    assert owners.owner_of(str(place / "etc/cache")) == (ONE, ONE)


def test_one_owner_of_all_that_is_written_to(place):
    directory(place / "home/hub")
    directory(place / "etc/hub")
    assert owners.one_owner(str(place / "home"), [str(place / "home/hub"), str(place / "home/hub/new")]) == (ONE, ONE)
    with pytest.raises(ClusterError) as caught:
        owners.one_owner(str(place / "etc"), [str(place / "etc/hub")])
    assert caught.value.remedy == f"sudo chown -R --reference={place}/etc {place}/etc/hub"


def test_a_directory_gives_no_user_a_group(place):
    os.chown(place / "home", 65534, 0)
    assert owners.owner_of(str(place / "home")).gid == 65534


def test_acting_as_a_user_gives_no_further_rights(place):
    with owners.acting_as(owners.owner_of(str(place / "home"))):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (ONE, ONE, [ONE])
        (place / "home/made").touch()
        with pytest.raises(PermissionError):
            (place / "etc/made").touch()
    assert os.geteuid() == os.getegid() == 0 and (place / "home/made").stat().st_uid == ONE


def require_readable(path):
    opened = os.open(path, os.O_PATH)
    try:
        owners.require_readable(str(path), opened)
    finally:
        os.close(opened)


def test_root_reads_nothing_for_a_user_who_may_not(place):
    (place / "etc/secret").write_text("secret")
    (place / "etc/secret").chmod(0o600)
    (place / "etc/public").write_text("public")
    (place / "home/own").write_text("own")
    os.chown(place / "home/own", ONE, ONE)
    (place / "home/own").chmod(0o600)
    for name, target in (("one", "etc/secret"), ("all", "etc/public"), ("mine", "home/own")):
        link(place / "home" / name, place / target)
    link(place / "home/over", "one")
    link(place / "home/folder", place / "etc")
    link(place / "home/roots", place / "etc/secret", 0)
    for name in ("all", "mine", "roots", "folder/public"):
        require_readable(place / "home" / name)
    for name in ("one", "over", "folder/secret"):
        with pytest.raises(ClusterError, match="which that user may not read") as caught:
            require_readable(place / "home" / name)
        assert str(place / "home") in caught.value.remedy and os.geteuid() == 0
    # A file that everybody can read, in a directory that the user cannot traverse.
    (place / "etc").chmod(0o700)
    with pytest.raises(ClusterError):
        require_readable(place / "home/all")


def test_a_user_reads_what_one_of_their_groups_may(place, monkeypatch):
    """As a directory of models that a group shares, with a link in each cache."""
    (place / "etc/shared").write_text("shared")
    os.chown(place / "etc/shared", 0, OTHER)
    (place / "etc/shared").chmod(0o640)
    link(place / "home/model", place / "etc/shared")
    with pytest.raises(ClusterError):
        require_readable(place / "home/model")
    account = type("Account", (), {"pw_name": "ada", "pw_gid": ONE})
    monkeypatch.setattr(owners.pwd, "getpwuid", lambda _uid: account)
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, OTHER])
    require_readable(place / "home/model")


SECRET = b"password" * 4


def digest(cache, _name):
    return digests.verify({str(cache): "a/b"}).noted


def safetensors(cache, name):
    return model_files.safetensors_fault(str(cache / name))


def content(cache, name):
    return untrusted.content(str(cache / name), 100)


@pytest.mark.parametrize("read", [digest, safetensors, content])
def test_nothing_that_reads_a_model_reads_it_for_a_user_who_may_not(place, read):
    (place / "etc/secret").write_bytes(SECRET)
    (place / "etc/secret").chmod(0o600)
    link(place / "home/model.safetensors", "../etc/secret")
    with pytest.raises(ClusterError, match="which that user may not read"):
        read(place / "home", "model.safetensors")
    # The page cache is not queried for it, either.
    assert page_cache.visit([str(place / "home")], 10, 10)["unreadable"] == 1
    # The client's own layout: the user's links to the user's files, which no other account can read.
    os.chown(place / "etc/secret", ONE, ONE)
    assert read(place / "home", "model.safetensors")
    assert page_cache.visit([str(place / "home")], 10, 10)["unreadable"] == 0


@pytest.mark.parametrize("by", ["a link to their own", "a file of their own", "their own directory"])
def test_a_link_replaced_after_opening_is_refused(place, monkeypatch, by):
    (place / "etc/secret").write_bytes(SECRET)
    (place / "etc/secret").chmod(0o600)
    directory(place / "home/own")
    for path in (place / "home/mine", place / "home/own/secret"):
        path.write_text("own")
        os.chown(path, ONE, ONE)
    link(place / "home/way", "../etc")
    link(place / "home/model", "way/secret")
    real = owners.require_readable

    def replaced(path, *opened):
        """It is put there between root's open and the look at the links."""
        if by == "their own directory":
            (place / "home/way").unlink()
            (place / "home/own").rename(place / "home/way")
        else:
            (place / "home/model").unlink()
            if by == "a link to their own":
                link(place / "home/model", "mine")
            else:
                (place / "home/mine").rename(place / "home/model")
        return real(path, *opened)

    monkeypatch.setattr(owners, "require_readable", replaced)
    with pytest.raises(ClusterError, match="was replaced meanwhile"):
        untrusted.content(str(place / "home/model"), 100)


def test_a_user_with_another_file_than_root_opened_is_refused(place, monkeypatch):
    """It is replaced between the look at the links and the attempt to open it as that user."""
    (place / "etc/secret").write_bytes(SECRET)
    (place / "etc/secret").chmod(0o600)
    (place / "etc/public").write_text("public")
    link(place / "home/model", "../etc/secret")
    real = owners.acting_as

    def acting_as(owner):
        (place / "home/model").unlink()
        link(place / "home/model", "../etc/public")
        return real(owner)

    monkeypatch.setattr(owners, "acting_as", acting_as)
    with pytest.raises(ClusterError, match="was replaced meanwhile"):
        untrusted.content(str(place / "home/model"), 100)


def test_a_held_directory_is_the_opened_one(place):
    directory(place / "home/hub")
    (place / "home/hub/own").touch()
    with owners.held(str(place / "home/hub")) as top:
        (place / "home/hub").rename(place / "home/gone")
        link(place / "home/hub", place / "etc")
        assert os.listdir(top) == ["own"]
    with pytest.raises(ClusterError), owners.held(str(place / "home/hub")):
        pass


def test_a_directory_that_is_replaced_before_it_is_opened_is_refused(place, monkeypatch):
    directory(place / "home/hub")
    real = owners.acting_as

    def acting_as(owner):
        os.rename(place / "home/hub", place / "home/gone")
        link(place / "home/hub", place / "theirs")
        return real(owner)

    monkeypatch.setattr(owners, "acting_as", acting_as)
    with pytest.raises(ClusterError, match="was replaced meanwhile"), owners.held(str(place / "home/hub")):
        pass
