"""TLS: names in certificates as Java writes them, settings, and bytes that are no certificate."""
import json
import re
import ssl
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from size import budget, needs_kafka
from benchmarks import real_kafka
from kafka_scratch.cluster.properties import ConfigError, read_properties
from kafka_scratch.cluster.config import Listener, read_config
from kafka_scratch.security.tls import CertificateError, distinguished_name, escape_name, map_name, principal_of
from kafka_scratch.security.tls import read_der, read_mapping, tls_arguments, tls_context
from security_by_hand import Certificates, needs_openssl

RECORDED = json.loads((Path(__file__).parents[1]/'fixtures'/'tls'/'certificates.json').read_text(encoding='utf-8'))
JAVA = '''import java.io.*; import java.security.cert.*;
public class Names { public static void main(String[] files) throws Exception {
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    for (String file : files) out.println(((X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(file)))
        .getSubjectX500Principal().getName()); } }'''  # noqa: E501


@pytest.mark.parametrize('each', RECORDED, ids=lambda each: each['name'][:30])
def test_names(each): assert distinguished_name(ssl.PEM_cert_to_DER_cert(each['pem'])) == each['name']


@needs_openssl
@needs_kafka
def test_names_as_java_writes_them_now(tmp_path):
    certificates = Certificates(tmp_path)
    subjects = ['/CN=plain', '/CN=a\\,b\\=c\\+d', '/CN=#x', '/CN=x#', '/CN= x  y ', '/O="q"/CN=<a>;b', '/CN=ü/OU=日本',
                '/emailAddress=a@b.c/CN=\\\\', '/CN=   ']
    for number, subject in enumerate(subjects): certificates.openssl(
        'req', '-x509', '-utf8', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout',
        'key', '-out', f'{number}.crt', '-days', '2', '-subj', subject)
    (tmp_path/'Names.java').write_text(JAVA)
    said = subprocess.run([real_kafka.java(), str(tmp_path/'Names.java'),
                           *(str(tmp_path/f'{n}.crt') for n in range(len(subjects)))],
                          capture_output=True, timeout=60, check=True).stdout.decode('utf-8').rstrip('\n').split('\n')
    assert [distinguished_name(ssl.PEM_cert_to_DER_cert((tmp_path/f'{n}.crt').read_text())) for n
            in range(len(subjects))] == said


@budget(300)
@given(st.data())
def test_what_is_no_certificate(data):
    good = bytearray(ssl.PEM_cert_to_DER_cert(data.draw(st.sampled_from(RECORDED))['pem']))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    del good[data.draw(st.integers(0, len(good))):]
    try: assert isinstance(distinguished_name(bytes(good)), str)
    except CertificateError: pass


@given(st.binary(max_size=30), st.integers(0, 30))
def test_nothing_is_read_beyond_the_end(data, at):
    try: kind, start, end = read_der(data, at)
    except CertificateError: pass
    else: assert at + 2 <= start <= end <= len(data)


@given(st.text(max_size=10))
def test_escapes_can_be_taken_off_again(text):
    assert re.sub(r'\\(00|.)', lambda match: '\0' if match[1] == '00' else match[1],
                  escape_name(text.replace('\n', ' ')), flags=re.DOTALL) == text.replace('\n', ' ') or '\0' in text


@pytest.mark.parametrize('rules, name, short', [   # from Kafka's documentation
    ('RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, DEFAULT',
     'CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown', 'serviceuser'),
    ('RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L',
     'CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown', 'adminuser@admin'),
    ('RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U', 'O=x,cn=kafka1', 'KAFKA1'), ('DEFAULT', 'CN=x', 'CN=x'),
    ('RULE:CN=x/y/', 'CN=z', None)])
def test_mapping_rules(rules, name, short): assert map_name(name, read_mapping(rules)) == short


def test_a_replacement_that_its_pattern_cannot_fill():
    with pytest.raises(ConfigError, match='invalid group reference 2'): read_mapping('RULE:^CN=(.*)$/$1@$2/')


def test_no_certificate_no_name():
    assert principal_of(None) == 'User:ANONYMOUS'
    class Nameless:
        def getpeercert(self, binary_form): return ssl.PEM_cert_to_DER_cert(RECORDED[0]['pem'])
    with pytest.raises(CertificateError): principal_of(Nameless(), read_mapping('RULE:CN=other/x/'))


@needs_openssl
def test_settings(tmp_path):
    certificates = Certificates(tmp_path)
    def context(listener='SSL', protocol='SSL', **changes):
        lines = {**certificates.settings(), 'ssl.client.auth': 'required', **changes}
        return tls_context(read_properties('\n'.join(f'{name}={value}' for name, value in lines.items()), 'x'),
                           Listener(listener, '', 0, protocol))
    assert context().verify_mode == ssl.CERT_REQUIRED and context().minimum_version == ssl.TLSVersion.TLSv1_2
    assert context('SASL_SSL', 'SASL_SSL').verify_mode == ssl.CERT_NONE, 'there, passwords are enough'
    assert context('SASL_SSL', 'SASL_SSL',
                   **{'listener.name.sasl_ssl.ssl.client.auth': 'requested'}).verify_mode == ssl.CERT_OPTIONAL
    assert context(**{'ssl.enabled.protocols': 'TLSv1.3'}).minimum_version == ssl.TLSVersion.TLSv1_3
    assert context(**{'ssl.keystore.location': tmp_path/'locked.pem', 'ssl.key.password': 'key-secret'})
    for changes in ({'ssl.keystore.location': tmp_path/'locked.pem'}, {'ssl.keystore.location': tmp_path/'locked.pem',
        'ssl.key.password': 'not-the-key'},
                    {'ssl.keystore.location': tmp_path/'us.crt'}, {'ssl.keystore.location': tmp_path},
                    {'ssl.cipher.suites': 'TLS_AES_128_GCM_SHA256'},
                    {'ssl.truststore.location': tmp_path/'nothing'}, {'ssl.truststore.type': 'PKCS12'},
                    {'ssl.enabled.protocols': 'TLSv1.1'}):
        with pytest.raises(ConfigError) as wrong: context(**changes)
        assert 'not-the-key' not in str(wrong.value) and 'PRIVATE' not in str(wrong.value)


@needs_openssl
def test_patience(tmp_path):
    lines = '\n'.join(f'{name}={value}' for name, value in Certificates(tmp_path).settings().items())
    def patience(idle):
        return tls_arguments(config := read_config(f'listeners=SSL://:1\nconnections.max.idle.ms={idle}\n{lines}'),
                             config.listeners[0])['ssl_handshake_timeout']
    assert (patience(600_000), patience(2000), patience(-1), patience(0)) == (30, 2, 30, 0.1)
    assert tls_arguments(read_config(), read_config().listeners[0]) == {}
